#include "plan/machine_refinement.h"

#include <algorithm>
#include <cmath>

namespace lockstep {

namespace {

constexpr int kMostRounds = 12;
constexpr double kComputeDamping = 0.7, kMessageDamping = 0.5;
constexpr double kLeastWait = 0.01;                             // of a step: less says nothing of the rates of messages
constexpr double kLeastGain = 0.001;                            // of the mean error, that a change must bring
constexpr double kMostShareOfPeak = 2, kMostShareOfCopy = 100;  // as spec/machine/machine_toml.cpp

using Predictions = std::vector<StepPrediction>;

double all_axes(const ByAxis& seconds) {
  double sum = 0;
  for (const double one : seconds) sum += one;
  return sum;
}

// Waits that rates of messages explain.
double message_waits(const ByAxis& seconds) {
  return all_axes(seconds) - seconds[static_cast<std::size_t>(MeshAxis::pp)];
}

Predictions predict_all(const MachineSpec& machine, const std::vector<RefiningRun>& runs) {
  Predictions all;
  for (const RefiningRun& run : runs) all.push_back(run.predict(machine));
  return all;
}

// Mean over runs: of the step's time, and of where it was spent.
double mean_error(const std::vector<RefiningRun>& runs, const Predictions& predictions) {
  double sum = 0;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const double measured = runs[r].step_seconds;
    sum += std::abs(std::log(predictions[r].step_seconds / measured));
    if (runs[r].exposed)
      sum += std::abs(message_waits(predictions[r].exposed) - message_waits(*runs[r].exposed)) / measured;
  }
  return sum / static_cast<double>(runs.size());
}

class MeanRatio {
 public:
  void add(double measured, double predicted) {
    if (!(measured > 0) || !(predicted > 0)) return;
    logs_ += std::log(measured / predicted);
    ++count_;
  }
  std::optional<double> value() const { return count_ > 0 ? std::optional(std::exp(logs_ / count_)) : std::nullopt; }

 private:
  double logs_ = 0, count_ = 0;
};

std::optional<double> compute_ratio(const std::vector<RefiningRun>& runs, const Predictions& predictions) {
  MeanRatio ratio;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const double waited = runs[r].exposed ? all_axes(*runs[r].exposed) : all_axes(predictions[r].exposed);
    ratio.add(runs[r].step_seconds - waited, predictions[r].step_seconds - all_axes(predictions[r].exposed));
  }
  return ratio.value();
}

std::optional<double> message_ratio(const std::vector<RefiningRun>& runs, const Predictions& predictions) {
  MeanRatio ratio;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    if (runs[r].ranks == 1 || !runs[r].exposed) continue;
    const double measured = message_waits(*runs[r].exposed), predicted = message_waits(predictions[r].exposed);
    if (measured >= kLeastWait * runs[r].step_seconds && predicted >= kLeastWait * predictions[r].step_seconds)
      ratio.add(measured, predicted);
  }
  return ratio.value();
}

// `compute` and `messages`: how much longer they take than the given machine says.
MachineSpec scaled(const MachineSpec& given, double compute, double messages, std::int64_t most_ranks) {
  MachineSpec machine = given;
  const auto of_peak = [&](double& share) { share = std::min(share / compute, kMostShareOfPeak); };
  if (compute != 1) {
    of_peak(machine.products.best);
    of_peak(machine.attention.forward);
    of_peak(machine.attention.backward);
    for (const std::string_view kind : kCopyLikeKernels) {
      double& share = machine.kernels.emplace(kind, 1.0).first->second;
      share = std::min(share / compute, kMostShareOfCopy);
    }
  }
  if (machine.kind == MachineSpec::Kind::threads) {
    machine.sum_rate /= messages;
    machine.copy_rate /= messages;
    return machine;
  }
  const auto of_link = [&](MachineLink& link) { link.efficiency = std::min(link.efficiency / messages, 1.0); };
  if (machine.devices_per_node > 1) of_link(machine.intra_node);
  if (most_ranks > machine.devices_per_node) of_link(machine.inter_node);
  return machine;
}

double within_bounds(double factor) { return std::clamp(factor, 1 / kMostRefined, kMostRefined); }

}  // namespace

MachineRefinement refine_machine(const MachineSpec& machine, const std::vector<RefiningRun>& runs) {
  std::int64_t most_ranks = 1;
  for (const RefiningRun& run : runs) most_ranks = std::max(most_ranks, run.ranks);
  MachineRefinement refined{.machine = machine};
  Predictions predictions = predict_all(machine, runs);
  for (std::size_t r = 0; r < runs.size(); ++r)
    refined.runs.push_back(
        {.name = runs[r].name, .measured = runs[r].step_seconds, .before = predictions[r].step_seconds});
  double error = mean_error(runs, predictions), compute = 1, messages = 1;
  // Whether it is better so.
  const auto take = [&](double new_compute, double new_messages) {
    if (new_compute == compute && new_messages == messages) return false;
    MachineSpec tried = scaled(machine, new_compute, new_messages, most_ranks);
    Predictions said = predict_all(tried, runs);
    const double now = mean_error(runs, said);
    if (!(now < error - kLeastGain)) return false;
    refined.machine = std::move(tried);
    predictions = std::move(said);
    error = now, compute = new_compute, messages = new_messages;
    return true;
  };
  for (int round = 0; round < kMostRounds; ++round) {
    bool better = false;
    if (const auto ratio = compute_ratio(runs, predictions))
      better = take(within_bounds(compute * std::pow(*ratio, kComputeDamping)), messages);
    if (const auto ratio = message_ratio(runs, predictions)) {
      refined.messages = messages;
      better = take(compute, within_bounds(messages * std::pow(*ratio, kMessageDamping))) || better;
    }
    if (!better) break;
  }
  refined.compute = compute;
  if (refined.messages) refined.messages = messages;
  for (std::size_t r = 0; r < runs.size(); ++r) refined.runs[r].after = predictions[r].step_seconds;
  return refined;
}

}  // namespace lockstep
