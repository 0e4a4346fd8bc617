#include "train/run_events.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/median.h"
#include "comm/gather_texts.h"
#include "telemetry/culprit.h"
#include "telemetry/number_text.h"

namespace lockstep {

namespace {

std::vector<PeerWork> work_of_ranks(const RunSpec& spec) {
  const LayoutSpec& layout = spec.layout;
  std::vector<PeerWork> work;
  for (std::int64_t rank = 0; rank < layout.ranks(); ++rank) {
    const std::int64_t part = layout.cp_order == CpOrder::plain ? layout.cp_rank(rank) : 0;
    const Share share = share_of(spec.train.global_batch, layout, layout.dp_rank(rank));
    std::int64_t of_server = layout.serves(rank) ? layout.pp * layout.cp : 0;              // its peers are servers
    if (spec.sync.is_asynchronous() && rank == layout.dp * layout.line()) of_server *= 2;  // which alone deals tickets
    work.push_back({.peers = of_server + layout.stage(rank) * layout.cp + part,
                    .share = static_cast<double>(std::max<std::int64_t>(1, share.count))});
  }
  return work;
}

}  // namespace

RunEvents::RunEvents(TrainingRun& run, Watcher& watcher, std::int64_t first_step)
    : run_(run),
      watcher_(watcher),
      clock_(run.uncounted_ranks(), {.scope = run.spec().run.clock}),
      rank_(run.ranks() ? run.ranks()->rank() : 0),
      first_(run.mesh_rank() - rank_),
      slow_(work_of_ranks(run.spec())) {
  compare(first_step, "start");
  add({.kind = EventKind::start, .step = first_step});
}

LoggedEvent RunEvents::logged(const Event& event) const {
  const double began = event.began.value_or(clock_.now());
  return {.time = clock_.since_1970(clock_.of(began)),
          .error = clock_.error(began),
          .rank = first_ + rank_,
          .kind = event.kind,
          .step = event.step,
          .seconds = event.seconds,
          .text = event.text,
          .speaks = rank_ == 0 && first_ > 0};
}

void RunEvents::changed(std::int64_t step, const WorkerChange& change) {
  LoggedEvent event = logged({.kind = change.joins ? EventKind::join : EventKind::leave,
                              .step = step,
                              .seconds = change.seconds,
                              .text = to_text(change)});
  event.rank = static_cast<int>(change.worker * run_.spec().layout.line());
  event.speaks = false;
  log(event);
  watcher_.note(fmt::format("step {}: {}", step, event.text));
}

void RunEvents::log(const LoggedEvent& event) {
  if (rank_ == 0) watcher_.happened(event);
}

void RunEvents::log_of(int rank, const RankEvent& event, std::optional<double> error) {
  if (!event.kind) return;
  log({.time = clock_.since_1970(event.time),
       .error = error,
       .rank = first_ + rank,
       .kind = *event.kind,
       .step = event.step,
       .seconds = event.seconds < 0 ? std::nullopt : std::optional(event.seconds)});
}

void RunEvents::add(const Event& event) {
  if (rank_ == 0) return log(logged(event));
  untold_.push_back({.kind = event.kind,
                     .step = event.step,
                     .time = clock_.of(event.began.value_or(clock_.now())),
                     .seconds = event.seconds.value_or(-1)});
  constexpr std::size_t kMostUntold = 4096;  // of ranks that seldom meet (train/async_steps.h)
  if (untold_.size() > kMostUntold) untold_.pop_front();
}

void RunEvents::stepped(std::int64_t step, double seconds) {
  last_step_ = step;
  last_seconds_ = untold_seconds_ = seconds;
  add({.kind = EventKind::step, .step = step, .seconds = seconds});
}

void RunEvents::failed(std::int64_t step, const std::exception& error) {
  const auto* of_another = dynamic_cast<const CommError*>(&error);
  if (rank_ != 0 && of_another && of_another->secondary()) return;  // the rank that failed says it
  LoggedEvent fault = logged({.kind = EventKind::fault, .step = step, .text = error.what()});
  fault.culprit = of_another ? culprit_in(fault.text) : rank_;
  if (fault.culprit) *fault.culprit += first_;
  watcher_.happened(fault);
}

ToldEvents RunEvents::tell() {
  ToldEvents told{.error = clock_.error(clock_.now()), .step_seconds = std::exchange(untold_seconds_, 0)};
  for (std::size_t i = 0; i < told.events.size() && !untold_.empty(); ++i) {
    told.events[i] = untold_.front();
    untold_.pop_front();
  }
  return told;
}

bool RunEvents::wants_comparison() const { return clock_.would_pass(run_.spec().run.clock_error, last_seconds_); }

void RunEvents::heard(const TrainingRun::Told& told) {
  if (told.any.compare_clocks) due_ = "the error would pass run.clock_error";
  look_for_stall(told);
  if (rank_ == 0) look_for_slow_ranks(told);
  for (std::size_t rank = 1; rank < told.events.size(); ++rank)
    for (const RankEvent& event : told.events[rank].events)
      log_of(static_cast<int>(rank), event, told.events[rank].error);
}

// Of the slowest rank, as all have told: the same on all of them.
void RunEvents::look_for_stall(const TrainingRun::Told& told) {
  std::size_t slowest = 0;
  for (std::size_t rank = 1; rank < told.events.size(); ++rank)
    if (told.events[rank].step_seconds > told.events[slowest].step_seconds) slowest = rank;
  const double seconds = told.events[slowest].step_seconds;
  if (seconds <= 0 || ++steps_seen_ == 1) return;  // the first one loads code and tables
  const double usual = median(usual_);
  if (usual_.size() >= kFewestSteps && seconds > kStallFactor * usual && seconds > usual + kStallSeconds) {
    due_ = "a stall";
    const bool known = std::ranges::any_of(told.times, [](const TimesByUse& times) { return times.total() > 0; });
    const int rank = known ? slowest_rank(told.times) : static_cast<int>(slowest);
    const double now = clock_.now();
    log({.time = clock_.since_1970(clock_.of(now)) - seconds,
         .error = clock_.error(now),
         .rank = first_ + rank,
         .kind = EventKind::stall,
         .step = last_step_,
         .seconds = seconds,
         .text = fmt::format("the step took {:.3g} s, steps before it {:.3g} s; rank {} {}", seconds, usual,
                             first_ + rank, known ? "was busy longest" : "took longest")});
  }
  if (usual_.size() == kUsualSteps) usual_.erase(usual_.begin());
  usual_.push_back(seconds);
}

void RunEvents::look_for_slow_ranks(const TrainingRun::Told& told) {
  const bool known = std::ranges::any_of(told.times, [](const TimesByUse& times) { return times.total() > 0; });
  if (!known || std::ssize(told.times) != run_.spec().layout.ranks()) return;
  std::vector<double> seconds;
  for (const TimesByUse& times : told.times) seconds.push_back(times[TimeUse::compute]);
  for (const SlowRanks::Change& change : slow_.add(seconds)) {
    const std::string text = fmt::format(
        "rank {} {} {} per step, ranks with the same work {} (medians of the last {} steps)", change.rank,
        change.slow ? "computes at less than half the speed of its peers:" : "is no longer slow: it computes",
        seconds_text(change.seconds), seconds_text(change.usual), change.steps);
    LoggedEvent event = logged({.kind = change.slow ? EventKind::slow : EventKind::slow_end,
                                .step = last_step_,
                                .seconds = change.seconds,
                                .text = text});
    event.rank = change.rank;
    log(event);
    watcher_.note(fmt::format("step {}: {}", last_step_, text));
  }
}

bool RunEvents::compare_if_due(std::int64_t step, bool tracing) {
  if (tracing && due_.empty()) due_ = "a trace";
  if (due_.empty() || !clock_.compares()) {
    due_.clear();
    return false;
  }
  compare(step, std::exchange(due_, ""));
  return true;
}

void RunEvents::compare(std::int64_t step, const std::string& why) {
  const double began = clock_.now();
  clock_.compare();
  if (rank_ != 0) return;
  const double ended = clock_.now();
  for (const RunClock::Compared& one : clock_.compared())
    log({.time = clock_.since_1970(clock_.of(ended)),
         .error = one.error,
         .rank = first_ + one.rank,
         .kind = EventKind::clock,
         .step = step,
         .seconds = ended - began,
         .text = fmt::format("{}: {:.9f} s behind the mean of {} clocks, {:.3f} ppm slower", why, one.offset,
                             clock_.compared().size(), one.drift * 1e6)});
}

void RunEvents::finish(std::int64_t step, const std::string& how) {
  add({.kind = EventKind::end, .step = step, .text = how});
  Communicator* const ranks = run_.uncounted_ranks();
  if (!ranks) return;
  const std::optional<double> error = clock_.error(clock_.now());
  nlohmann::json mine = nlohmann::json::array();
  for (const RankEvent& event : std::exchange(untold_, {}))
    mine.push_back({static_cast<int>(*event.kind), event.step, event.time, event.seconds, error.value_or(-1)});
  const std::vector<std::string> all = gather_texts(*ranks, mine.dump());
  for (std::size_t rank = 1; rank_ == 0 && rank < all.size(); ++rank)
    for (const auto& told : nlohmann::json::parse(all[rank])) {
      const double known = told[4];
      log_of(static_cast<int>(rank),
             {.kind = static_cast<EventKind>(told[0].get<int>()), .step = told[1], .time = told[2], .seconds = told[3]},
             known < 0 ? std::nullopt : std::optional(known));
    }
}

}  // namespace lockstep
