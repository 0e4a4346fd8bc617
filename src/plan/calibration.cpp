#include "plan/calibration.h"

#include <algorithm>
#include <chrono>
#include <future>

#include "comm/threads/run_ranks.h"
#include "kernels/cpu/ceilings.h"
#include "parallel/zero_shards.h"
#include "plan/coding_rates.h"
#include "plan/machine.h"
#include "plan/plan.h"
#include "plan/step_spans.h"
#include "plan/timed_tensors.h"
#include "train/pinning.h"
#include "train/training_run.h"

namespace lockstep {

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

MachineRates measure_machine(const RunSpec& spec, int threads, int copies) {
  constexpr std::size_t kCopied = std::size_t{64} << 20;
  return {.flops = gemm_peak(Device::cpu, storage_types(spec.precision).compute, threads * copies) / copies,
          .bytes = cpu::copy_bandwidth(threads * copies, kCopied) / copies};
}

// One rank of the run on micro-batches of the layout's size; two, as the first begins a sum and others add to it.
RunSpec one_rank(const RunSpec& spec) {
  RunSpec one = spec;
  one.layout = {.micro = std::min<std::int64_t>(2, spec.layout.micro)};
  one.memory.gathered = 0;
  one.sync = {};
  one.train.global_batch =
      share_of(spec.train.global_batch, spec.layout, 0).count / spec.layout.micro * one.layout.micro;
  return one;
}

struct Sums {
  std::map<std::pair<ActionKind, UnitPlace>, double> of;
  double total = 0;
  void add(const Action& action, const StepShape& shape, double seconds) {
    of[{action.kind, place_of(action, shape)}] += seconds;
    total += seconds;
  }
};

}  // namespace

double roofline_seconds(const meta::Work& work, const MachineRates& rates) {
  const auto slower = [&](std::int64_t flops, std::int64_t bytes) {
    return std::max(static_cast<double>(flops) / rates.flops, static_cast<double>(bytes) / rates.bytes);
  };
  return slower(work.matmul_flops, work.matmul_bytes) +
         slower(work.flops - work.matmul_flops, work.bytes_read + work.bytes_written - work.matmul_bytes);
}

UnitPlace place_of(const Action& action, const StepShape& shape) {
  if (action.unit < 0) return UnitPlace::none;
  return action.unit == 0 ? UnitPlace::first : action.unit == shape.last() ? UnitPlace::last : UnitPlace::inner;
}

double ActionRates::of(const Action& action, const StepShape& shape) const {
  const auto at = slowness.find({action.kind, place_of(action, shape)});
  return at == slowness.end() ? mean : at->second;
}

Calibrator::Calibrator(const RunData& data, int cores, std::function<bool()> wants_stop)
    : data_(data), cores_(cores), wants_stop_(std::move(wants_stop)) {}

std::optional<Calibration> Calibrator::of(const RunSpec& spec, int threads) {
  const auto stops = [&] { return wants_stop_ && wants_stop_(); };
  const int ranks = static_cast<int>(spec.layout.ranks()), copies = std::clamp(cores_ / threads, 1, ranks);
  if (stops()) return std::nullopt;
  const auto machine = machine_.find({threads, copies});
  const MachineRates& rates = machine != machine_.end()
                                  ? machine->second
                                  : machine_[{threads, copies}] = measure_machine(spec, threads, copies);
  if (stops()) return std::nullopt;
  if (!messages_.contains(ranks)) messages_[ranks] = ranks == 1 ? MessageRates{} : measure_messages(ranks, cores_);
  if (stops()) return std::nullopt;
  const RunSpec one = one_rank(spec);
  const std::tuple key{threads, copies, one.train.global_batch, one.layout.micro};
  if (!actions_.contains(key)) actions_[key] = measure_actions(one, threads, copies, rates);
  return Calibration{.machine = rates,
                     .messages = messages_.at(ranks),
                     .actions = actions_.at(key),
                     .coding = coding_of(spec, threads, copies)};
}

double Calibrator::coding_of(const RunSpec& spec, int threads, int copies) {
  const Compression& form = spec.sync.compress ? spec.sync.compress : spec.sync.compress_weights;
  if (!form) return 0;
  const std::tuple key{form.text(), threads, copies};
  if (!coding_.contains(key)) coding_[key] = measure_coding(spec, form, threads, copies);
  return coding_.at(key);
}

ActionRates Calibrator::measure_actions(const RunSpec& one, int threads, int copies,
                                        const MachineRates& machine) const {
  if (plan_run(one, 0, &data_).peak * copies > available_memory()) return {};
  constexpr int kSteps = 3;
  const StepScript script = step_script(one, data_);
  const RankScript& counted = script.ranks.front();
  const StepShape& shape = counted.step.shape;
  const auto action_of = [&](std::size_t index) { return counted.step.actions[index]; };

  std::vector<StepSpans> seen(static_cast<std::size_t>(copies));
  std::vector<double> took(seen.size());
  const auto body = [&](std::unique_ptr<Communicator> comm) {
    const auto r = static_cast<std::size_t>(comm->rank());
    if (one.run.pin) take_share_of_cores(comm->rank(), comm->size());
    TrainingRun run(one, Device::cpu, "", {.threads = threads, .data = &data_});
    run.init_weights();
    run.replica().show(&seen[r]);
    for (int step = 0; step < kSteps; ++step) {
      seen[r].begin_step();
      comm->barrier()->wait();
      const auto begin = Clock::now();
      run.step(step * one.train.global_batch, one.optimizer.learning_rate);
      if (step > 0) took[r] += seconds_since(begin);
    }
    run.replica().show(nullptr);
  };
  // In a thread of its own, as the one that calls is rank 0 and would keep to its share of the cores.
  std::async(std::launch::async, [&] { run_ranks(copies, body); }).get();

  Sums predicted, measured;
  double all = 0;
  int steps = 0;
  for (const ScriptPiece& piece : counted.pieces) {
    steps += piece.kind == ScriptPiece::Kind::step_begins;
    if (piece.kind == ScriptPiece::Kind::work && piece.action >= 0)
      predicted.add(action_of(static_cast<std::size_t>(piece.action)), shape, roofline_seconds(piece.work, machine));
  }
  const double each = 1.0 / ((kSteps - 1) * copies) * steps;  // as many steps as were counted
  for (std::size_t r = 0; r < seen.size(); ++r) {
    for (std::size_t step = 1; step < seen[r].steps().size(); ++step)
      for (const StepSpans::Span& span : seen[r].steps()[step])
        measured.add(action_of(span.action), shape, (span.end - span.begin) * each);
    all += took[r] * each;
  }
  ActionRates rates{.measured = true};
  if (predicted.total > 0) rates.mean = measured.total / predicted.total;
  for (const auto& [key, seconds] : predicted.of) {
    if (seconds == 0) continue;
    rates.slowness[key] = measured.of[key] / seconds;
    all -= measured.of[key];
  }
  rates.beside = std::max(0.0, all) / steps / static_cast<double>(counted.samples);
  return rates;
}

}  // namespace lockstep
