#include "plan/compared_trial.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <future>
#include <limits>
#include <numeric>

#include "base/median.h"
#include "comm/delayed.h"
#include "comm/gather_texts.h"
#include "comm/recorder.h"
#include "comm/threads/run_ranks.h"
#include "optim/learning_rate.h"
#include "plan/step_prediction.h"
#include "telemetry/number_text.h"
#include "train/pinning.h"
#include "train/shared_gpu.h"

namespace lockstep {

namespace {

using Clock = std::chrono::steady_clock;

std::unique_ptr<Communicator> all_of(Communicator& ranks, const std::string& name) {
  return ranks.split([](int rank) { return Place{.color = 0, .key = rank}; }, name);
}

}  // namespace

// Whether the ranks stop before a step, the same answer for all without a wait: what rank 0 decides before a step holds
// from the next one on. Threads see it, since no rank begins that before all have summed the loss of this one;
// processes are sent it during the step.
class ComparedTrial::Stop {
 public:
  Stop(const std::function<bool()>& wanted, Communicator* processes) : wanted_(wanted) {
    if (processes) told_over_ = all_of(*processes, "stop");
  }

  bool before(std::int64_t step, int rank) {
    if (told_over_) return told_before(rank);
    if (step >= first_) return true;
    if (rank == 0 && wanted_ && wanted_() && first_ > step + 1) first_ = step + 1;
    return false;
  }
  // After the last step.
  void end() {
    if (!told_) return;
    told_->wait();
    told_.reset();
  }

 private:
  bool told_before(int rank) {
    end();
    if (wish_ != 0) return true;
    wish_ = rank == 0 && wanted_ && wanted_() ? 1 : 0;
    told_ = told_over_->broadcast(Tensor(&wish_, DType::i64, Device::cpu, {1}), 0);
    return false;
  }

  const std::function<bool()>& wanted_;
  std::atomic<std::int64_t> first_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t wish_ = 0;
  std::unique_ptr<Communicator> told_over_;  // of processes
  std::unique_ptr<Pending> told_;
};

ComparedTrial::ComparedTrial(const RunSpec& spec, const RunData& data, const ComparisonOptions& options)
    : spec_(spec), data_(data), options_(options), rounds_(static_cast<std::size_t>(spec.layout.ranks())) {
  compared_.layout = spec.layout;
  compared_.threads = options.process ? options.process->threads : threads_of(spec);
  compared_.tokens_a_step = data.tokens_of(spec.train.global_batch);
  compared_.waits_measured = !on_gpu();
  if (spec.sync.takes_local_steps()) compared_.every = spec.sync.every;
}

// Of a rank that has its own data, or shares that of this process.
Plan ComparedTrial::plan_of(int rank) const { return plan_run(spec_, rank, options_.process ? nullptr : &data_); }

std::optional<std::string> ComparedTrial::why_it_does_not_fit() const {
  const std::int64_t free = available_memory(device_of(spec_)), ranks = spec_.layout.ranks();
  if (const ComparedProcess* const process = options_.process) {
    const int rank = process->ranks.rank();
    const Plan plan = plan_of(rank);
    const std::int64_t share = on_gpu() ? free : free / process->ranks_here, needed = plan.peak + plan.outside;
    const std::string mine =
        needed <= share ? ""
                        : fmt::format("rank {} needs {}, and {} are free", rank, byte_text(needed), byte_text(share));
    for (const std::string& why : gather_texts(process->ranks, mine))
      if (!why.empty()) return why;
    return std::nullopt;
  }
  const std::int64_t line = spec_.layout.cp * spec_.layout.tp;
  std::int64_t peak = 0, all = 0, disk = 0;  // rank 0 counts the text; the ranks of a stage are alike
  const std::int64_t servers = spec_.layout.servers;
  const auto count = [&](std::int64_t rank, std::int64_t alike) {
    const Plan one = plan_of(static_cast<int>(rank));
    peak = std::max(peak, one.peak);
    all += one.peak * alike + (rank == 0 ? one.outside : 0);
    disk += one.disk * alike;
  };
  for (std::int64_t s = 0; s < spec_.layout.pp; ++s) {
    count(s * line, (ranks - servers) / spec_.layout.pp);
    if (servers > 0) count(ranks - servers + s * line, servers / spec_.layout.pp);
  }
  if (options_.memory > 0 && peak > options_.memory)
    return fmt::format("{} are needed on a rank, and {} are allowed", byte_text(peak), byte_text(options_.memory));
  if (const std::int64_t there = disk > 0 ? available_disk(spec_) : 0; disk > there)
    return fmt::format("{} are needed on the disk, and {} are free", byte_text(disk), byte_text(there));
  if (all <= free) return std::nullopt;
  return fmt::format("up to {} on each of {} rank{} are needed, {} in all, and {} are free", byte_text(peak), ranks,
                     ranks == 1 ? "" : "s", byte_text(all), byte_text(free));
}

bool ComparedTrial::forecast(Calibrator& calibrator, int cores) {
  const int threads = compared_.threads;
  const std::optional<Calibration> calibration = calibrator.of(spec_, threads);
  if (calibration)
    compared_.forecast =
        forecast_run(spec_, data_, *calibration, {.cores = cores, .threads = threads, .link = options_.link});
  return calibration.has_value();
}

void ComparedTrial::predict(const MachineSpec& machine) {
  const StepPrediction predicted = predict_step(spec_, machine, data_, plan_stages(spec_, data_));
  compared_.forecast = LayoutForecast{.step_seconds = predicted.step_seconds,
                                      .exposed_seconds = predicted.exposed_seconds(),
                                      .exposed = predicted.exposed,
                                      .bubble = predicted.bubble};
}

bool ComparedTrial::round(std::int64_t steps) {
  const bool ran = options_.process ? round_of_processes(steps) : round_of_threads(steps);
  if (!ran) return false;
  compared_.round_steps = steps;
  add_bubbles(steps);
  add_round_time(steps);
  return true;
}

bool ComparedTrial::round_of_threads(std::int64_t steps) {
  Stop stop(options_.wants_stop, nullptr);
  std::atomic<bool> stopped = false;
  const auto body = [&](std::unique_ptr<Communicator> comm) {
    std::optional<SimulatedLink> link;
    if (options_.link) link.emplace(options_.link->latency_seconds, options_.link->bytes_per_second);
    if (link) comm = std::make_unique<Delayed>(std::move(comm), *link);
    if (spec_.run.pin) take_share_of_cores(comm->rank(), comm->size());
    if (!train(std::move(comm), steps, stop)) stopped = true;
  };
  // In a thread of its own: rank 0 is the thread that calls run_ranks, and keeps to its share of the cores.
  std::async(std::launch::async, [&] {
    run_ranks(static_cast<int>(rounds_.size()), body, {.deadline_seconds = spec_.run.deadline});
  }).get();
  return !stopped;
}

bool ComparedTrial::round_of_processes(std::int64_t steps) {
  Communicator& ranks = options_.process->ranks;
  Stop stop(options_.wants_stop, &ranks);
  if (!train(all_of(ranks, "world"), steps, stop)) return false;  // on all of them
  const std::vector<std::string> texts = gather_texts(ranks, to_text(rounds_[static_cast<std::size_t>(ranks.rank())]));
  for (std::size_t r = 0; r < texts.size(); ++r) rounds_[r] = compared_round(texts[r]);
  return true;
}

// Spans of several ranks are compared, which takes one clock: that of a host.
bool ComparedTrial::keeps_spans() const {
  if (spec_.layout.pp == 1 || spec_.layout.servers > 0 || on_gpu()) return false;  // servers run other lists
  return !options_.process || options_.process->ranks_here == options_.process->ranks.size();
}

// `given` is what `ranks` records.
TrainingRun::Where ComparedTrial::place(Recorder& ranks, Communicator& given, CommLog& log) const {
  TrainingRun::Where where{
      .ranks = &ranks, .threads = compared_.threads, .data = &data_, .data_of_rank = options_.process != nullptr};
  if (!on_gpu()) return where;
  where.arena_bytes = plan_of(given.rank()).peak;
  if (given.size() == 1) {
    where.ranks = nullptr;
    return where;
  }
  where.connect = [this, &given, &log](Communicator&, Memory& memory, Stream& stream) -> std::unique_ptr<Communicator> {
    auto there = options_.process ? options_.process->connect(given, memory, stream) : on_shared_gpu(given, stream);
    return std::make_unique<Recorder>(std::move(there), log);
  };
  return where;
}

// One rank; whether it came to the end.
bool ComparedTrial::train(std::unique_ptr<Communicator> comm, std::int64_t steps, Stop& stop) {
  const int rank = comm->rank();
  Communicator& given = *comm;
  CommLog log(std::numeric_limits<std::size_t>::max());
  Recorder ranks(std::move(comm), log);
  TrainingRun run(spec_, device_of(spec_), "", place(ranks, given, log));
  run.init_weights();
  StepSpans spans;
  if (keeps_spans()) run.replica().show(&spans);
  ComparedRound mine;
  std::size_t messages_before = 0, messages_of_first = 0;
  double waited_before = 0;
  auto begin = Clock::now();
  bool stopped = false;
  for (std::int64_t step = 0; step <= steps && !stopped; ++step) {
    stopped = stop.before(step, rank);
    if (stopped) break;
    messages_before = log.begun();
    if (step == 1) messages_of_first = messages_before;
    spans.begin_step();
    const double rate = learning_rate(spec_.schedule, spec_.optimizer.learning_rate, step,
                                      std::max<std::int64_t>(1, spec_.train.steps));
    mine.loss = run.step(step * spec_.train.global_batch, rate).loss;
    const auto end = Clock::now();
    const double waited = log.waited();
    if (step > 0) {
      mine.step.push_back(std::chrono::duration<double>(end - begin).count());
      mine.exposed.push_back(waited - waited_before);
    }
    begin = end;
    waited_before = waited;
  }
  stop.end();
  const std::vector<CommRecord> records = log.last();
  run.replica().show(nullptr);
  run.replica().settle();
  if (stopped) return false;
  ComparedRound& all = rounds_[static_cast<std::size_t>(rank)];
  for (const auto& [to, from] : {std::pair{&all.step, &mine.step}, {&all.exposed, &mine.exposed}})
    to->insert(to->end(), from->begin(), from->end());
  all.loss = mine.loss;
  if (keeps_spans()) all.spans = spans.steps();
  if (rank == 0 || options_.process) lists_ = run.replica().rank_step().lists;
  all.rank.messages = step_messages(std::span(records).subspan(messages_before), spec_.layout);
  all.rank.sent = step_messages(std::span(records).subspan(messages_of_first), spec_.layout).total().bytes_sent;
  all.rank.rows = run.ledger().rows();
  all.rank.peak = run.ledger().peak();
  all.rank.host = run.host_ledger().peak();
  all.rank.disk = run.disk_ledger().peak();
  const Staging::Traffic state = run.replica().traffic();
  const auto activations = run.replica().moved_activations();
  all.rank.moved = {.to_device = (state.to_device + activations.to_device) / (steps + 1),
                    .from_device = (state.from_device + activations.from_device) / (steps + 1)};
  for (int t = 0; t < kTags; ++t) all.rank.peaks[static_cast<std::size_t>(t)] = run.ledger().peak(static_cast<Tag>(t));
  return true;
}

void ComparedTrial::add_bubbles(std::int64_t steps) {
  if (!keeps_spans()) return;
  std::vector<RankStep> lists;
  for (std::int64_t r = 0; r < std::ssize(rounds_); ++r) {
    const auto stage = static_cast<std::size_t>(spec_.layout.stage(r));
    lists.push_back({.shape = lists_->shapes[stage],
                     .schedule = lists_->schedule,
                     .actions = lists_->actions[stage],
                     .evaluation = {},
                     .lists = lists_});
  }
  for (std::int64_t step = 1; step <= steps; ++step) {
    std::vector<WatchedRank> ranks;
    for (std::size_t r = 0; r < rounds_.size(); ++r)
      ranks.push_back({lists[r], rounds_[r].spans[static_cast<std::size_t>(step)]});
    bubbles_.push_back(*pipeline_bubble(ranks));
  }
}

// The median over means of as many steps as are between two synchronizations, one of which ends with one.
double ComparedTrial::typical(const std::vector<double>& steps) const {
  std::vector<double> means;
  for (std::int64_t begin = 0; begin + compared_.every <= std::ssize(steps); begin += compared_.every)
    means.push_back(std::accumulate(steps.begin() + begin, steps.begin() + begin + compared_.every, 0.0) /
                    static_cast<double>(compared_.every));
  return median(std::move(means));
}

void ComparedTrial::add_round_time(std::int64_t steps) {
  double sum = 0;
  for (const ComparedRound& round : rounds_) sum += typical({round.step.end() - steps, round.step.end()});
  round_seconds_.push_back(sum / static_cast<double>(rounds_.size()));
}

ComparedLayout ComparedTrial::result() {
  for (const ComparedRound& round : rounds_) {
    ComparedRank& rank = compared_.ranks.emplace_back(round.rank);
    rank.step_seconds = typical(round.step);
    rank.exposed_seconds = typical(round.exposed);
  }
  const auto most = [&](const auto& of) {
    return static_cast<int>(std::ranges::max_element(compared_.ranks, {}, of) - compared_.ranks.begin());
  };
  compared_.loss = rounds_[0].loss;
  const double middle = median(round_seconds_);
  for (const double seconds : round_seconds_)
    compared_.repeatability = std::max(compared_.repeatability, std::abs(seconds / middle - 1));
  if (!bubbles_.empty()) compared_.bubble = median(bubbles_);
  compared_.fullest = most(&ComparedRank::peak);
  compared_.sender = most([](const ComparedRank& rank) { return rank.messages.total().bytes_sent; });
  compared_.fullest_plan = plan_of(compared_.fullest);
  compared_.sender_plan = compared_.sender == compared_.fullest ? compared_.fullest_plan : plan_of(compared_.sender);
  return std::move(compared_);
}

}  // namespace lockstep
