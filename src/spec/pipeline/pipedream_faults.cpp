// find_pipedream_fault: walks windows of each stage, and asks of all stages' windows whether they fit each other.
#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

#include "spec/pipeline/pipedream.h"
#include "spec/step/world_faults.h"

namespace lockstep {

namespace {

constexpr int kWalkedSteps = 4;

// The versions of one stage's weights, while a window is walked.
class VersionWalk {
 public:
  VersionWalk(const PipeDreamStage& of, const StepShape& shape) : of_(of), shape_(shape) {
    for (int u = 0; u < shape.units; ++u)
      if (shape.has(u)) units_.try_emplace(u);
  }

  // What is wrong with the action here; it has happened then.
  std::optional<std::string> fault(const Action& a) {
    if (a.kind != ActionKind::norm && !units_.contains(a.unit)) return std::nullopt;  // the world's checker tells
    switch (a.kind) {
      case ActionKind::forward:
      case ActionKind::backward_input:
      case ActionKind::backward_weight:
        return phase_fault(a);
      case ActionKind::stash:
        return stash_fault(a);
      case ActionKind::reduce:
        return reduce_fault(a);
      case ActionKind::norm:
        return norm_fault(a);
      case ActionKind::update:
        return update_fault(a);
      default:
        return std::nullopt;
    }
  }

  std::optional<std::string> end_fault(int steps) const {
    for (const auto& [u, unit] : units_)
      if (const int all = steps * of_.updates_per_step(); unit.version != all)
        return fmt::format("unit {} ends at version {} of {}", u, unit.version, all);
    return std::nullopt;
  }

 private:
  struct Unit {
    int version = 0;               // of the weights that are updated
    std::map<int, int> stashed;    // by place
    std::map<int, int> forwards;   // by micro-batch: the version that its forward used
    std::set<int> whole, reduced;  // micro-batches whose gradient is
    std::optional<int> unapplied;  // the last micro-batch that has written a gradient
  };

  int update_of(int micro) const { return of_.accumulates() ? micro / of_.micro : micro; }  // from 0
  bool applies(int micro) const { return !of_.accumulates() || micro % of_.micro == of_.micro - 1; }
  int place_of(int version) const { return (version % of_.stashes() + of_.stashes()) % of_.stashes(); }
  bool has(const Unit& unit, int version) const {
    if (version == unit.version) return true;
    if (of_.stashes() == 0) return false;
    const auto place = unit.stashed.find(place_of(version));
    return place != unit.stashed.end() && place->second == version;
  }

  std::optional<std::string> phase_fault(const Action& a) {
    Unit& unit = units_.at(a.unit);
    if (a.kind == ActionKind::forward) {
      unit.forwards[a.micro] = a.version;
    } else if (const auto used = unit.forwards.find(a.micro); used == unit.forwards.end()) {
      return "its forward has not run";
    } else if (used->second != a.version) {
      return fmt::format("its forward used version {}", used->second);
    }
    const int planned = of_.accumulates() ? update_of(a.micro) - 1 : a.micro - of_.lag();
    if (a.version != planned) return fmt::format("the schedule has it at version {}", planned);
    if (!has(unit, a.version)) return fmt::format("version {} of unit {} is not kept", a.version, a.unit);
    if (a.kind != ActionKind::backward_weight) return std::nullopt;
    if (unit.unapplied && update_of(*unit.unapplied) != update_of(a.micro))
      return fmt::format("the gradient of micro-batch {} is not yet applied", *unit.unapplied);
    unit.unapplied = a.micro;
    unit.whole.insert(a.micro);
    return std::nullopt;
  }

  // Before the first update all earlier versions are the first.
  std::optional<std::string> stash_fault(const Action& a) {
    Unit& unit = units_.at(a.unit);
    if (of_.stashes() == 0) return "this stage keeps one version";
    if (a.version != unit.version && !(unit.version == 0 && a.version < 0 && a.version >= -of_.stashes()))
      return fmt::format("unit {} is at version {}", a.unit, unit.version);
    unit.stashed[place_of(a.version)] = a.version;
    return std::nullopt;
  }

  std::optional<std::string> reduce_fault(const Action& a) {
    Unit& unit = units_.at(a.unit);
    if (!applies(a.micro)) return "the gradient is not yet that of the step";
    if (!unit.whole.contains(a.micro)) return "there is no gradient yet";
    if (!unit.reduced.insert(a.micro).second) return "it has run before";
    return std::nullopt;
  }

  std::optional<std::string> norm_fault(const Action& a) {
    for (const auto& [u, unit] : units_)
      if (!unit.reduced.contains(a.micro)) return fmt::format("needs reduce({}, {}) first", u, a.micro);
    if (!normed_.insert(a.micro).second) return "it has run before";
    return std::nullopt;
  }

  std::optional<std::string> update_fault(const Action& a) {
    Unit& unit = units_.at(a.unit);
    if (!normed_.contains(a.micro)) return "needs the micro-batch's norm first";
    if (unit.version != update_of(a.micro)) return fmt::format("unit {} is at version {}", a.unit, unit.version);
    if (a.version != unit.version + 1) return fmt::format("it makes version {}", unit.version + 1);
    unit.version = a.version;
    unit.unapplied.reset();
    return std::nullopt;
  }

  const PipeDreamStage of_;
  const StepShape& shape_;
  std::map<int, Unit> units_;
  std::set<int> normed_;
};

}  // namespace

std::optional<std::string> find_pipedream_fault(ScheduleKind kind, const std::vector<PipeDreamLists>& stages,
                                                const StepShape& shape) {
  for (int steps = 1; steps <= kWalkedSteps; ++steps) {
    WorldLists world{.shape = window_shape(shape, steps), .ranks = {}};
    world.shape.reduces_each = false;
    for (int s = 0; s < static_cast<int>(stages.size()); ++s) {
      const PipeDreamStage of{
          .kind = kind, .stages = static_cast<int>(stages.size()), .stage = s, .micro = shape.micro};
      StepShape here = world.shape;
      here.stage = s;
      const std::vector<Action> window = window_of(stages[static_cast<std::size_t>(s)], of, steps);
      VersionWalk walk(of, here);
      for (std::size_t i = 0; i < window.size(); ++i)
        if (const auto fault = walk.fault(window[i]))
          return fmt::format("stage {}, action {} of {} steps, {}: {}", s, i, steps, to_string(window[i]), *fault);
      if (const auto fault = walk.end_fault(steps)) return fmt::format("stage {} in {} steps: {}", s, steps, *fault);
      world.ranks.push_back(without_versions(window, here));
      world.most_in_flight.push_back(of.in_flight());
    }
    if (const auto fault = find_world_fault(world)) return fmt::format("in {} steps, {}", steps, *fault);
  }
  return std::nullopt;
}

}  // namespace lockstep
