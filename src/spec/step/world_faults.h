// The check that the lists of all ranks of a mesh fit each other, before any of them is run.
//
// Each list is a step by itself (find_fault of spec/step/actions.h). The check proves that every message is received,
// in the order in which it was sent; that ranks which act together (gather, reduce and publish along dp and cp,
// everything that computes along cp and tp, the norm everywhere) do so in one order; that no stage keeps more in flight
// than it may; and that no rank waits for ever.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spec/step/actions.h"

namespace lockstep {

struct WorldLists {
  StepShape shape;  // of any stage
  std::int64_t dp = 1, cp = 1, tp = 1;
  std::vector<std::vector<Action>> ranks;  // rank = ((dp_rank · stages + stage) · cp + cp_rank) · tp + tp_rank
  std::vector<int> most_in_flight = {};    // by stage, micro-batches of a chunk; empty: as many as there are
};

// The first reason why they cannot be run, or nothing.
std::optional<std::string> find_world_fault(const WorldLists& world);

// The most micro-batches of any of its chunks that are between their first and their last phase at a time.
int in_flight(const std::vector<Action>& list, const StepShape& shape);

}  // namespace lockstep
