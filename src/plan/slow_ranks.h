// Slow ranks of a world: which they are, and which replicas are alike.
//
// A share of the ranks computes slower than the others by a factor. Which ranks these are is a function of the seed
// alone. The tp and cp ranks of a stage wait for each other inside every phase, so one slow rank slows its whole stage
// of its replica, by the greatest factor among them. Replicas whose stages are slowed alike do the same at the same
// time: they are one kind, which the clock (plan/device_clock.h) runs once.
#pragma once
#include <cstdint>
#include <vector>

#include "spec/layout/layout_spec.h"

namespace lockstep {

struct SlowShare {
  double share = 0;   // of all ranks: the nearest number of them, at least one where it is above 0
  double factor = 1;  // times as long as others compute, at least 1
};
struct SlowRank {
  std::int64_t rank = 0;
  double factor = 1;
};
// In the order of ranks. A rank is in one share at most; together they are 1 at most.
std::vector<SlowRank> draw_slow_ranks(std::int64_t ranks, const std::vector<SlowShare>& shares, std::uint64_t seed);

struct ReplicaKind {
  std::vector<double> slowness;       // by stage: 1, or the greatest factor of its ranks
  std::vector<std::int64_t> members;  // replicas (dp ranks), rising
};
// In the order of their first replicas.
std::vector<ReplicaKind> replica_kinds(const LayoutSpec& layout, const std::vector<SlowRank>& slow);

}  // namespace lockstep
