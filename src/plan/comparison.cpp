#include "plan/comparison.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <limits>

#include "base/error.h"
#include "base/median.h"
#include "comm/recorder.h"
#include "comm/threads/run_ranks.h"
#include "optim/learning_rate.h"
#include "plan/timed_tensors.h"
#include "telemetry/number_text.h"
#include "train/pinning.h"
#include "train/training_run.h"

namespace lockstep {

namespace {

template <class Value>
double mean_of(const std::vector<ComparedRank>& ranks, Value ComparedRank::*value) {
  double sum = 0;
  for (const ComparedRank& rank : ranks) sum += static_cast<double>(rank.*value);
  return sum / static_cast<double>(ranks.size());
}

// Whether the ranks stop before a step, the same answer for all without an extra message: what rank 0 decides before a
// step holds from the next one on, and no rank begins that before all have summed the loss of this one.
class StopTogether {
 public:
  explicit StopTogether(const std::function<bool()>& wanted) : wanted_(wanted) {}
  bool before(std::int64_t step, int rank) {
    if (step >= first_) return true;
    if (rank == 0 && wanted_ && wanted_() && first_ > step + 1) first_ = step + 1;
    return false;
  }

 private:
  const std::function<bool()>& wanted_;
  std::atomic<std::int64_t> first_ = std::numeric_limits<std::int64_t>::max();
};

class Trial {
 public:
  Trial(const RunSpec& spec, const RunData& data, const std::function<bool()>& wants_stop)
      : spec_(spec), data_(data), wants_stop_(wants_stop), times_(static_cast<std::size_t>(spec.layout.ranks())) {
    compared_.layout = spec.layout;
    compared_.threads = threads_of(spec);
    compared_.tokens_a_step = spec.train.global_batch * spec.data.seq;
    compared_.ranks.resize(times_.size());
  }

  // Before it runs. False: it was stopped.
  bool forecast(Calibrator& calibrator, int cores) {
    const int threads = compared_.threads;
    const std::optional<Calibration> calibration = calibrator.of(spec_, threads);
    if (calibration)
      compared_.forecast =
          forecast_layout(step_script(spec_, data_), *calibration, {.cores = cores, .threads = threads});
    return calibration.has_value();
  }

  // Trains from the beginning. False: it was stopped, and nothing of it counts.
  bool round(std::int64_t steps) {
    StopTogether stop(wants_stop_);
    std::atomic<bool> stopped = false;
    const auto body = [&](std::unique_ptr<Communicator> comm) {
      if (!train(std::move(comm), steps, stop)) stopped = true;
    };
    // In a thread of its own: rank 0 is the thread that calls run_ranks, and keeps to its share of the cores.
    std::async(std::launch::async, [&] {
      run_ranks(static_cast<int>(times_.size()), body, {.deadline_seconds = spec_.run.deadline});
    }).get();
    if (!stopped) add_bubbles(steps);
    return !stopped;
  }

  // After a round.
  ComparedLayout result() {
    for (std::size_t r = 0; r < times_.size(); ++r) {
      compared_.ranks[r].step_seconds = median(times_[r].step);
      compared_.ranks[r].exposed_seconds = median(times_[r].exposed);
    }
    const auto most = [&](const auto& of) {
      return static_cast<int>(std::ranges::max_element(compared_.ranks, {}, of) - compared_.ranks.begin());
    };
    if (!bubbles_.empty()) compared_.bubble = median(bubbles_);
    compared_.fullest = most(&ComparedRank::peak);
    compared_.sender = most([](const ComparedRank& rank) { return rank.messages.total().bytes_sent; });
    compared_.fullest_plan = plan_run(spec_, compared_.fullest, &data_);
    compared_.sender_plan =
        compared_.sender == compared_.fullest ? compared_.fullest_plan : plan_run(spec_, compared_.sender, &data_);
    return std::move(compared_);
  }
  const LayoutSpec& layout() const { return spec_.layout; }
  bool has_round() const { return !times_[0].step.empty(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Times {
    std::vector<double> step, exposed;  // of each step
    RankStep list = {};
    StepSpans spans = {};  // of a pipeline: of each step of a round, the first one too
  };

  void add_bubbles(std::int64_t steps) {
    for (std::int64_t step = 1; step <= steps && spec_.layout.pp > 1; ++step) {
      std::vector<WatchedRank> ranks;
      for (const Times& rank : times_) ranks.push_back({rank.list, rank.spans.steps()[static_cast<std::size_t>(step)]});
      bubbles_.push_back(*pipeline_bubble(ranks));
    }
  }

  // One rank; whether it came to the end.
  bool train(std::unique_ptr<Communicator> comm, std::int64_t steps, StopTogether& stop) {
    const int rank = comm->rank();
    if (spec_.run.pin) take_share_of_cores(rank, comm->size());
    CommLog log(std::numeric_limits<std::size_t>::max());
    Recorder ranks(std::move(comm), log);
    TrainingRun run(spec_, Device::cpu, "", {.ranks = &ranks, .threads = compared_.threads, .data = &data_});
    run.init_weights();
    Times times;
    if (spec_.layout.pp > 1) run.replica().show(&times.spans);
    std::size_t messages_before = 0;
    double waited_before = 0, loss = 0;
    auto begin = Clock::now();
    bool stopped = false;
    for (std::int64_t step = 0; step <= steps && !stopped; ++step) {
      stopped = stop.before(step, rank);
      if (stopped) break;
      messages_before = log.begun();
      times.spans.begin_step();
      const double rate = learning_rate(spec_.schedule, spec_.optimizer.learning_rate, step,
                                        std::max<std::int64_t>(1, spec_.train.steps));
      loss = run.step(step * spec_.train.global_batch, rate).loss;
      const auto end = Clock::now();
      const double waited = log.waited();
      if (step > 0) {
        times.step.push_back(std::chrono::duration<double>(end - begin).count());
        times.exposed.push_back(waited - waited_before);
      }
      begin = end;
      waited_before = waited;
    }
    const std::vector<CommRecord> records = log.last();
    run.replica().show(nullptr);
    run.replica().settle();
    if (stopped) return false;
    ComparedRank& mine = compared_.ranks[static_cast<std::size_t>(rank)];
    Times& all = times_[static_cast<std::size_t>(rank)];
    all.step.insert(all.step.end(), times.step.begin(), times.step.end());
    all.exposed.insert(all.exposed.end(), times.exposed.begin(), times.exposed.end());
    all.list = run.replica().rank_step();
    all.spans = std::move(times.spans);
    mine.messages = step_messages(std::span(records).subspan(messages_before), spec_.layout);
    mine.rows = run.ledger().rows();
    mine.peak = run.ledger().peak();
    for (int t = 0; t < kTags; ++t) mine.peaks[static_cast<std::size_t>(t)] = run.ledger().peak(static_cast<Tag>(t));
    if (rank == 0) compared_.loss = loss;
    return true;
  }

  const RunSpec& spec_;
  const RunData& data_;
  const std::function<bool()>& wants_stop_;
  std::vector<Times> times_;     // by rank
  std::vector<double> bubbles_;  // by step
  ComparedLayout compared_;
};

// All ranks are in this process.
std::optional<std::string> why_it_does_not_fit(const RunSpec& spec, const RunData& data) {
  const std::int64_t free = available_memory(), ranks = spec.layout.ranks(), line = spec.layout.cp * spec.layout.tp;
  std::int64_t peak = 0, all = 0;  // rank 0 counts the text; the ranks of a stage are alike
  for (std::int64_t s = 0; s < spec.layout.pp; ++s) {
    const std::int64_t one = plan_run(spec, static_cast<int>(s * line), &data).peak;
    peak = std::max(peak, one);
    all += one * ranks / spec.layout.pp;
  }
  if (all <= free) return std::nullopt;
  return fmt::format("up to {} on each of {} rank{} are needed, {} in all, and {} are free", byte_text(peak), ranks,
                     ranks == 1 ? "" : "s", byte_text(all), byte_text(free));
}

// The divisor next to the root: a copy is sharded over this many ranks, and there are several copies.
std::optional<std::int64_t> hybrid_shard(std::int64_t ranks) {
  std::optional<std::int64_t> shard;
  for (std::int64_t d = 2; d * d <= ranks; ++d)
    if (ranks % d == 0) shard = d;
  return shard;
}

bool can_be_cut(const RunSpec& run, const LayoutSpec& layout) {
  bool can = true;
  check_model_layout(run.model, run.data.seq, layout,
                     [&](std::string_view, const std::string&, const std::string&) { can = false; });
  return can;
}

}  // namespace

double ComparedLayout::mean_peak() const { return mean_of(ranks, &ComparedRank::peak); }
double ComparedLayout::step_seconds() const { return mean_of(ranks, &ComparedRank::step_seconds); }
double ComparedLayout::exposed_seconds() const { return mean_of(ranks, &ComparedRank::exposed_seconds); }

bool ComparedLayout::memory_as_planned() const {
  const ComparedRank& measured = fullest_rank();
  return measured.peak == fullest_plan.peak && measured.peaks == fullest_plan.peaks &&
         measured.rows == fullest_plan.rows;
}

bool ComparedLayout::messages_as_planned() const { return sender_rank().messages == sender_plan.messages; }

bool Comparison::ok() const { return std::ranges::all_of(layouts, &ComparedLayout::ok); }

RunSpec laid_out(const RunSpec& run, const LayoutSpec& layout) {
  RunSpec spec = run;
  spec.layout = layout;
  spec.train.save_last = false;
  spec.train.save_every = spec.train.eval_every = 0;
  if (layout.zero != 3 || layout.reshard != Reshard::forward) spec.memory.gathered = 0;
  return spec;
}

Comparison compare_costs(const RunSpec& run, const std::vector<LayoutSpec>& layouts, const ComparisonOptions& options) {
  std::vector<RunSpec> specs;  // a mistake is reported before anything runs
  for (const LayoutSpec& layout : layouts) {
    specs.push_back(laid_out(run, layout));
    validate(specs.back(), [&](std::string_view, std::string_view) { return "layout " + to_text(layout); });
  }
  const RunData data(run);
  Comparison comparison;
  std::vector<Trial> trials;
  for (const RunSpec& spec : specs) {
    if (const auto why = why_it_does_not_fit(spec, data))
      comparison.left_out.push_back({spec.layout, *why});
    else
      trials.emplace_back(spec, data, options.wants_stop);
  }
  Calibrator calibrator(data, usable_cores(), options.wants_stop);
  for (Trial& trial : trials)
    if (options.forecasts && !comparison.stopped) comparison.stopped = !trial.forecast(calibrator, usable_cores());
  const std::int64_t rounds = std::min(options.rounds, options.steps);
  for (std::int64_t round = 0; round < rounds && !comparison.stopped; ++round)
    for (Trial& trial : trials) {
      if (options.begins) options.begins(trial.layout());
      comparison.stopped = !trial.round(options.steps / rounds + (round < options.steps % rounds ? 1 : 0));
      if (comparison.stopped) break;
    }
  for (Trial& trial : trials)
    if (trial.has_round()) comparison.layouts.push_back(trial.result());
  return comparison;
}

std::vector<LayoutSpec> usual_layouts(const RunSpec& run, std::int64_t ranks) {
  const LayoutSpec& base = run.layout;
  const LayoutSpec plain{.dp = ranks, .micro = base.micro, .uneven = base.uneven, .reduce = base.reduce};
  if (ranks == 1) return {plain};
  std::vector<LayoutSpec> all;
  const auto add = [&](auto&& change) { change(all.emplace_back(plain)); };
  add([](LayoutSpec& l) { l.dp_kind = DpKind::central; });
  add([](LayoutSpec& l) { l.overlap = Switch::off; });
  add([](LayoutSpec&) {});
  for (const std::int64_t zero : {1, 2, 3})
    for (const GradSync sync : {GradSync::step, GradSync::micro})
      add([&](LayoutSpec& l) {
        l.zero = zero;
        l.grad_sync = sync;
      });
  const LayoutSpec three = all.back();
  all.push_back(three);
  all.back().reshard = Reshard::never;
  if (const auto shard = hybrid_shard(ranks)) {
    all.push_back(three);
    all.back().shard = *shard;
  }
  const auto add_cut = [&](std::int64_t tp, Switch sp) {
    LayoutSpec cut = plain;
    cut.dp = ranks / tp;
    cut.tp = tp;
    cut.sp = sp;
    if (ranks % tp == 0 && can_be_cut(run, cut)) all.push_back(cut);
  };
  add_cut(ranks, Switch::on);
  add_cut(ranks, Switch::off);
  if (ranks >= 4) add_cut(2, Switch::on);
  for (const CpKind& kind : {kRing, kUlysses}) {
    LayoutSpec cut = plain;
    cut.dp = 1;
    cut.cp = ranks;
    cut.cp_kind = kind;
    if (can_be_cut(run, cut)) all.push_back(cut);
  }
  for (const ScheduleKind kind : kScheduleKinds) {
    if (base.micro == 1) break;  // one stage would work at a time
    LayoutSpec deep = plain;
    deep.dp = 1;
    deep.pp = ranks;
    deep.schedule = kind;
    deep.chunks = usual_chunks(kind);
    if (can_be_cut(run, deep)) all.push_back(deep);
  }
  return all;
}

}  // namespace lockstep
