// Says in one line where tensor- or context-parallel groups have ranks on several nodes: what that sends over the
// network, how long it takes, and what to change.
//
// tp exchanges activations in every layer and waits for most of them, and cp exchanges keys and values in every layer:
// both belong inside a node. Groups of pp and dp are expected to cross.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "plan/placement_costs.h"

namespace lockstep {

// What a rank, or all ranks of a node together, can send to other nodes.
struct NetworkRate {
  double bytes_per_second = 0;
  bool of_node = false;
};
// Of all ranks' nodes, where each rank of an all-reduce sends so many bytes per second (train/link_probe.h).
NetworkRate network_rate(double sent_per_second, const NodeMap& nodes, Route route);

// "tp=8 crosses nodes of 4 ranks: 1.20 GiB per step and rank leave the node, about 0.103 s at 12.5 GB/s; use tp=4 with
// dp=4, or nodes with at least 8 ranks". One line for tp; for cp where tp is inside nodes. Nothing: all is well.
// A smaller tp or cp is proposed where the model, the batch and the nodes allow it; memory is not looked at.
std::vector<std::string> placement_warnings(const RunSpec& spec, const PlacementCosts& costs, const NodeMap& nodes,
                                            const std::optional<NetworkRate>& rate);

}  // namespace lockstep
