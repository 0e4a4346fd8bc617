// How long a message takes on a machine's links, when it has them to itself.
//
//   within a node          steps · latency + bytes / (bandwidth · efficiency)
//   over several nodes     of n bytes that a rank sends, with g ranks of its group on its node of N in all
//     canonical, tree      n (N − g) / (N − 1) over the network, each rank by its own card; the rest within the node
//     ring                 n over the network: the ring leaves a node by one card
//     native, and what     n / g over the network: NCCL has a ring for every card of a node, and n within the node
//     gathers whatever the algorithm of sums
//   a send                 latency + bytes / (bandwidth · pair_efficiency); while the other end sends to it too, each
//                          has `both_ways` of that rate
//
// Where the group reaches beyond the nodes that the network joins at full rate, its share that leaves them has
// 1 / oversubscription of it: of a ring the share of one rank in all those inside, else that of the ranks outside.
// A canonical sum also takes reading and writing what is summed. A library's own collectives take the logarithm of N in
// latencies.
#pragma once
#include "plan/stage_script.h"
#include "spec/machine/machine_spec.h"

namespace lockstep {

enum class LinkLevel : std::uint8_t { within_node, between_nodes };
inline constexpr int kLinkLevels = 2;

struct MessagePrice {
  double latency = 0;   // seconds beside moving bytes
  double transfer = 0;  // seconds of the busiest link
  double opposed = 1;   // of a send: the share of its rate that it keeps while another goes the other way
  LinkLevel level = LinkLevel::within_node;
  double seconds() const { return latency + transfer; }
};

MessagePrice price_of(const StageMessage& message, const MachineSpec& machine);

}  // namespace lockstep
