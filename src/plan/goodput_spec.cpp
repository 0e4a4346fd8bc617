#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "plan/goodput.h"

namespace lockstep {

namespace {

constexpr double kMostFailures = 1e8;         // over all repeats: about a minute
constexpr double kMostSimulatedSteps = 1e15;  // that a double still counts one by one
constexpr std::int64_t kMostSimulatedCount = std::int64_t{1} << 40, kMostRepeats = 1'000'000;

[[noreturn]] void refuse_goodput(const std::string& problem, const std::string& remedy) {
  throw UserError(ExitCode::usage, problem, remedy);
}

}  // namespace

double GoodputSpec::failures_per_second() const {
  const auto rate = [](std::int64_t things, double hours) {
    return hours > 0 ? static_cast<double>(things) / (hours * 3600) : 0;
  };
  return rate(ranks, device_hours_between_failures) + rate(nodes(), node_hours_between_failures);
}

void validate(const GoodputSpec& spec) {
  const auto count = [](const char* name, std::int64_t value, std::int64_t least,
                        std::int64_t most = kMostSimulatedCount) {
    if (value < least || value > most)
      refuse_goodput(fmt::format("{} is {}", name, value), fmt::format("give a number from {} to {}", least, most));
  };
  const auto not_negative = [](const char* name, double value) {
    if (!(value >= 0) || !std::isfinite(value))
      refuse_goodput(fmt::format("{} is {}", name, value), "give a finite number that is not negative");
  };
  for (const auto& [name, value] :
       {std::pair{"step_seconds", spec.step_seconds}, {"duration_seconds", spec.duration_seconds}}) {
    not_negative(name, value);
    if (value == 0) refuse_goodput(fmt::format("{} is 0", name), "give a number above 0");
  }
  for (const auto& [name, value] : {std::pair{"device_hours_between_failures", spec.device_hours_between_failures},
                                    {"node_hours_between_failures", spec.node_hours_between_failures},
                                    {"save_stall_seconds", spec.save_stall_seconds},
                                    {"save_write_seconds", spec.save_write_seconds},
                                    {"detect_seconds", spec.detect_seconds},
                                    {"restart_seconds", spec.restart_seconds},
                                    {"load_seconds", spec.load_seconds},
                                    {"repair_seconds", spec.repair_seconds}})
    not_negative(name, value);
  count("ranks", spec.ranks, 1);
  count("devices_per_node", spec.devices_per_node, 1);
  count("save_every", spec.save_every, 1);
  count("spare_nodes", spec.spare_nodes, 0);
  count("nodes_per_replica", spec.nodes_per_replica, 1);
  count("repeats", spec.repeats, 1, kMostRepeats);
  if (spec.shrink && spec.nodes() % spec.nodes_per_replica != 0)
    refuse_goodput(fmt::format("{} nodes are not whole replicas of {} nodes", spec.nodes(), spec.nodes_per_replica),
                   "give a nodes_per_replica that divides the nodes");
  if (!(spec.duration_seconds / spec.step_seconds <= kMostSimulatedSteps))
    refuse_goodput(fmt::format("steps of {} seconds for {} seconds are too many to count", spec.step_seconds,
                               spec.duration_seconds),
                   "give longer steps or a shorter duration");
  const double failures = spec.failures_per_second() * spec.duration_seconds;
  if (!(failures * static_cast<double>(spec.repeats) <= kMostFailures))
    refuse_goodput(fmt::format("{:.3g} failures are expected in each of {} simulated runs, more than {:.0e} together",
                               failures, spec.repeats, kMostFailures),
                   "give more hours between failures, a shorter duration or fewer repeats");
}

CheckpointCosts checkpoint_costs(const GoodputSpec& spec) {
  return {.failures_per_second = spec.failures_per_second(),
          .stall_seconds = spec.save_stall_seconds,
          .write_seconds = spec.save_write_seconds,
          .recovery_seconds = spec.detect_seconds + spec.restart_seconds + spec.load_seconds};
}

std::int64_t best_interval(const GoodputSpec& spec) {
  validate(spec);
  const CheckpointCosts costs = checkpoint_costs(spec);
  const double most = std::max(1.0, std::floor(spec.duration_seconds / spec.step_seconds));
  // Goodput has one maximum over the interval, so the best whole number of steps is beside the best real one.
  const double below = std::clamp(std::floor(best_work_seconds(costs) / spec.step_seconds), 1.0, most);
  const double above = std::min(below + 1, most);
  const auto goodput = [&](double steps) { return expected_goodput(costs, steps * spec.step_seconds); };
  return static_cast<std::int64_t>(goodput(above) > goodput(below) ? above : below);
}

}  // namespace lockstep
