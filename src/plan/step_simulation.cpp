#include "plan/step_simulation.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lockstep {

namespace {

using Clocked = std::vector<std::vector<StageTimes>>;

double step_of(const StageTimes& times) { return times.end - times.begin; }

// The lanes that are simulated, and how many replicas each stands for.
struct SimulatedReplicas {
  std::vector<std::vector<double>> slowness;
  std::vector<double> weights;
  std::vector<std::int64_t> first;  // replica of each lane
  void add(const ReplicaKind& kind, std::size_t member, double weight) {
    slowness.push_back(kind.slowness);
    weights.push_back(weight);
    first.push_back(kind.members[member]);
  }
};

SimulatedReplicas choose_replicas(std::vector<ReplicaKind> kinds, bool each, std::size_t most) {
  SimulatedReplicas chosen;
  const auto all = [&] {
    std::size_t count = 0;
    for (const ReplicaKind& kind : kinds) count += each ? kind.members.size() : 1;
    return count;
  }();
  if (all > most)  // the slowest first
    std::ranges::stable_sort(kinds, std::greater<>{}, [](const ReplicaKind& kind) {
      return std::accumulate(kind.slowness.begin(), kind.slowness.end(), 0.0);
    });
  // Of each kind as many as there is room for, at least one while there is.
  std::size_t room = std::min(most, all);
  std::vector<std::size_t> counts(kinds.size(), 0);
  for (std::size_t k = 0; k < kinds.size() && room > 0; ++k, --room) counts[k] = 1;
  for (std::size_t k = 0; each && k < kinds.size() && room > 0; ++k) {
    const std::size_t more = std::min(room, kinds[k].members.size() - counts[k]);
    counts[k] += more;
    room -= more;
  }
  for (std::size_t k = 0; k < kinds.size(); ++k)
    for (std::size_t i = 0; i < counts[k]; ++i)
      chosen.add(kinds[k], i, static_cast<double>(kinds[k].members.size()) / static_cast<double>(counts[k]));
  return chosen;
}

void add_waits(ByAxis& sum, const ByAxis& waited, double weight) {
  for (std::size_t a = 0; a < sum.size(); ++a) sum[a] += waited[a] * weight;
}

// Seconds that a replica waits for others.
double waits_for_replicas(const std::vector<StageTimes>& stages) {
  double waits = 0;
  for (const StageTimes& stage : stages) waits += stage.waited[static_cast<std::size_t>(MeshAxis::dp)];
  return waits;
}

// Mean over lanes of the seconds between the ends of two steps.
double mean_step(const Clocked& times, const std::vector<double>& weights) {
  double sum = 0, all = 0;
  for (std::size_t k = 0; k < times.size(); ++k)
    for (const StageTimes& stage : times[k]) {
      sum += step_of(stage) * weights[k];
      all += weights[k];
    }
  return sum / all;
}

}  // namespace

StepSimulation simulate_steps(const WorldScript& script, const LayoutSpec& layout, const MachineSpec& machine,
                              const SimulationSpec& spec) {
  const std::size_t stages = script.stages.size();
  StepSimulation result{.slow = draw_slow_ranks(layout.ranks(), spec.slow, spec.seed), .replicas = layout.dp};
  result.stages.resize(stages);
  for (const SlowRank& slow : result.slow) {
    SimulatedStage& stage = result.stages[static_cast<std::size_t>(layout.stage(slow.rank))];
    ++stage.slow_ranks;
    stage.slowness = std::max(stage.slowness, slow.factor);
  }

  const Clocked plain = run_clock(script, machine);
  result.plain_seconds = mean_step(plain, {1});
  for (const StageTimes& stage : plain[0])
    add_waits(result.plain_waited, stage.waited, 1 / static_cast<double>(stages));

  for (std::size_t s = 0; s < stages; ++s) {
    SimulatedStage& stage = result.stages[s];
    stage.alone_seconds = result.plain_seconds;
    if (stage.slow_ranks == 0) continue;
    ClockOptions alone{.replicas = {std::vector<double>(stages, 1.0)}};
    alone.replicas[0][s] = stage.slowness;
    if (layout.dp > 1) alone.replicas.emplace_back(stages, 1.0);
    stage.alone_seconds = mean_step(run_clock(script, machine, alone), std::vector<double>(alone.replicas.size(), 1.0));
  }

  std::vector<ReplicaKind> kinds = replica_kinds(layout, result.slow);
  result.kinds = std::ssize(kinds);
  std::int64_t pieces = 0;  // of a replica
  for (const StageScript& stage : script.stages) pieces += std::ssize(stage.pieces);
  const auto most =
      static_cast<std::size_t>(std::max<std::int64_t>(2, spec.most_pieces / std::max<std::int64_t>(1, pieces)));
  const SimulatedReplicas chosen = choose_replicas(std::move(kinds), spec.jitter > 0 || !spec.grouped, most);
  result.simulated = std::ssize(chosen.weights);
  const double replicas = std::accumulate(chosen.weights.begin(), chosen.weights.end(), 0.0);

  const int steps = spec.jitter > 0 ? spec.steps : 1;
  std::vector<double> waits(chosen.weights.size(), 0);
  for (int step = 0; step < steps; ++step) {
    const Clocked times = run_clock(
        script, machine,
        {.replicas = chosen.slowness, .jitter = spec.jitter, .seed = spec.seed + static_cast<std::uint64_t>(step)});
    const double seconds = mean_step(times, chosen.weights);
    result.step_seconds += seconds / steps;
    result.shortest = step == 0 ? seconds : std::min(result.shortest, seconds);
    result.longest = std::max(result.longest, seconds);
    for (std::size_t k = 0; k < times.size(); ++k) {
      const double share = chosen.weights[k] / (replicas * steps);
      waits[k] += waits_for_replicas(times[k]);
      for (std::size_t s = 0; s < stages; ++s) {
        result.stages[s].computed += times[k][s].computed * share;
        add_waits(result.stages[s].waited, times[k][s].waited, share);
      }
    }
  }
  for (const SimulatedStage& stage : result.stages) {
    result.computed += stage.computed / static_cast<double>(stages);
    add_waits(result.waited, stage.waited, 1 / static_cast<double>(stages));
  }
  const auto slowest = static_cast<std::size_t>(std::ranges::min_element(waits) - waits.begin());
  result.slowest = chosen.first[slowest];
  result.slowest_stages = chosen.slowness[slowest];
  return result;
}

}  // namespace lockstep
