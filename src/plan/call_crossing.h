// What of one call leaves the nodes of its group's ranks. With N ranks in a group, k of them on a node and H nodes:
//
//   direct    GPUs (comm/nccl): every rank sends to every other itself. A sum by any algorithm but `native` is an
//             exchange of pieces: (N - k) / (N - 1) of what a rank sends crosses. An all-gather, a broadcast and
//             `native` sums are left to NCCL, and taken to go round a ring that enters and leaves each node once.
//   leaders   processes (comm/processes): the ranks of a node sum what they can among themselves
//   (comm/processes/placement.h), and
//             one of them sends it. To a sum of n elements a node gives its operands of every other node's pieces, wide
//             where several ranks are in them; a gathered piece is sent once to each other node. `native` is MPI's own,
//             taken to be a ring in the order of ranks.
#pragma once
#include <cstdint>
#include <vector>

#include "comm/message.h"
#include "spec/layout/layout_spec.h"

namespace lockstep {

enum class Route : std::uint8_t { direct, leaders };
constexpr Route route_of(Device device) { return device == Device::cuda ? Route::direct : Route::leaders; }

// Bytes that leave the node of each member, where every member makes this call once: `sent` and `received` are those of
// member 0, which is the root if there is one. What a leader sends is told in equal parts of the members on its node.
// labels: the members' nodes, numbered by first appearance.
std::vector<double> crossing_of_call(CommOp op, DType dtype, ReduceKind reduce, double sent, double received,
                                     const std::vector<std::int32_t>& labels, Route route);
// The same where every member sends to the one that is `distance` after it, going round.
std::vector<double> crossing_of_send(double sent, std::int64_t distance, const std::vector<std::int32_t>& labels);

}  // namespace lockstep
