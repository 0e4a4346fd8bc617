// Whether the lists of all ranks are right, as the checker says and as the machine finds: the two must agree.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "spec/step/world_faults.h"
#include "spec/world_brute_force.h"

namespace lockstep::tests {

// What the step leaves behind where one stage has everything and runs one micro-batch after the other.
class Reference {
 public:
  explicit Reference(const WorldLists& world) {
    StepShape shape = world.shape;
    shape.stages = {};
    shape.gathers = false;
    WorldLists serial{.shape = shape, .dp = world.dp, .tp = 1, .ranks = {}};
    for (int d = 0; d < world.dp; ++d) serial.ranks.push_back(serial_step(shape));
    WorldBruteForce machine(serial);
    machine.run(0);
    for (std::size_t d = 0; d < serial.ranks.size(); ++d) ends_.push_back(machine.end(d));
  }

  // Whether a run in that order gets there. `why` is for whoever looks into a disagreement.
  bool is_reached(const WorldLists& world, std::uint32_t order, std::string& why) const {
    try {
      WorldBruteForce machine(world);
      machine.run(order);
      for (std::size_t r = 0; r < world.ranks.size(); ++r)
        if (const std::string wrong = difference(world, r, machine); !wrong.empty()) throw std::runtime_error(wrong);
      return true;
    } catch (const std::runtime_error& e) {
      why = e.what();
      return false;
    }
  }

 private:
  std::string difference(const WorldLists& world, std::size_t r, const WorldBruteForce& machine) const {
    const std::size_t tp = static_cast<std::size_t>(world.tp), stages = world.ranks.size() / ends_.size() / tp;
    const WorldBruteForce::End end = machine.end(r), &wanted = ends_[r / tp / stages];
    StepShape shape = world.shape;
    shape.stage = static_cast<int>(r / tp % stages);
    for (int u = 0; u < shape.units; ++u) {
      if (shape.has(u) &&
          (end.from_forward[u] != wanted.from_forward[u] || end.from_backward[u] != wanted.from_backward[u]))
        return "another sum";
      if (!shape.has(u) && !shape.has_copy(u)) continue;
      if (end.weight[u] != wanted.weight[u] || end.elsewhere[u] != wanted.elsewhere[u]) return "other weights";
    }
    const auto& most = world.most_in_flight;
    if (!most.empty() && machine.most_in_flight(r) > most[static_cast<std::size_t>(shape.stage)])
      return "too much kept";
    return "";
  }

  std::vector<WorldBruteForce::End> ends_;  // by dp rank
};

inline std::string words(const WorldLists& world) {
  std::string text;
  for (const auto& list : world.ranks) {
    for (const Action& a : list) text.append(to_string(a)).append(" ");
    text += "\n";
  }
  return text;
}

// Both verdicts, and that of another order of the ranks.
inline bool both_accept(const Reference& reference, const WorldLists& world, std::uint32_t seed) {
  std::string why = "it runs", again;
  const bool right = reference.is_reached(world, seed, why);
  EXPECT_EQ(right, reference.is_reached(world, seed + 1, again)) << why << " / " << again;
  const auto fault = find_world_fault(world);
  EXPECT_EQ(!fault, right) << "checker: " << fault.value_or("no fault") << "\nmachine: " << why << "\ndp=" << world.dp
                           << " tp=" << world.tp << " seed=" << seed << "\n"
                           << words(world);
  return right && !fault;
}

}  // namespace lockstep::tests
