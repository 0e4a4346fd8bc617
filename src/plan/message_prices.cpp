#include "plan/message_prices.h"

#include <algorithm>
#include <bit>

namespace lockstep {

namespace {

double rate_of_collective(const MachineLink& link) { return link.bandwidth * link.efficiency; }

// Only sums go by an algorithm of ours where ranks have devices; NCCL gathers and broadcasts its own way.
Algorithm algorithm_of(const StageMessage& m) {
  if (m.among == StageMessage::Among::link) return Algorithm::canonical;  // from each rank to one, or back
  return m.op == CommOp::all_gather || m.op == CommOp::broadcast ? Algorithm::native : m.algorithm;
}

// How many times as long a message takes by links between groups of nodes that have less than the network's rate. They
// carry what leaves such a group of nodes: of a ring, what one rank of those in it sends.
double spine_slowness(const StageMessage& m, const MachineSpec& machine) {
  if (!m.group.over_spine) return 1;
  if (point_to_point(m.op)) return machine.oversubscription;
  const double all = m.group.ranks, near = m.group.on_spine;
  const bool ring = algorithm_of(m) == Algorithm::ring || algorithm_of(m) == Algorithm::native;
  const double leaves = ring ? 1 / near : (all - near) / (all - 1);
  return std::max(1.0, leaves * machine.oversubscription);
}

// Seconds in which the group's messages pass over the network and within nodes.
std::pair<double, double> crossing_and_inside(const StageMessage& m, double network, double node) {
  const auto sent = static_cast<double>(std::max(m.sent, m.busiest));
  const double here = m.group.on_node, all = m.group.ranks;
  switch (algorithm_of(m)) {
    case Algorithm::ring:
      return {sent / network, sent / node};
    case Algorithm::native:
      return {sent / here / network, here > 1 ? sent / node : 0};
    default: {
      const double crosses = (all - here) / (all - 1);
      return {sent * crosses / network, sent * (1 - crosses) / node};
    }
  }
}

}  // namespace

MessagePrice price_of(const StageMessage& m, const MachineSpec& machine) {
  const bool inside = m.group.nodes <= 1;
  const MachineLink& link = inside ? machine.intra_node : machine.inter_node;
  const double spine = spine_slowness(m, machine);
  MessagePrice price{.latency = link.latency, .level = inside ? LinkLevel::within_node : LinkLevel::between_nodes};
  if (point_to_point(m.op)) {
    price.transfer = static_cast<double>(m.sent) / (link.bandwidth * link.pair_efficiency) * spine;
    price.opposed = link.both_ways;
    return price;
  }
  const auto rounds = algorithm_of(m) == Algorithm::native
                          ? static_cast<double>(std::bit_width(static_cast<unsigned>(m.group.ranks - 1)))
                          : static_cast<double>(std::max<std::int64_t>(1, m.steps));
  price.latency = rounds * (link.collective_latency > 0 ? link.collective_latency : link.latency);
  if (inside) {
    price.transfer = static_cast<double>(std::max(m.sent, m.busiest)) / rate_of_collective(link);
  } else {
    const auto [crossing, within] =
        crossing_and_inside(m, rate_of_collective(link) / spine, rate_of_collective(machine.intra_node));
    price.transfer = std::max(crossing, within);
  }
  const double sums = machine.sum_rate > 0 ? machine.sum_rate : machine.rate_of_copy(static_cast<double>(m.summed));
  if (m.summed > 0 && sums > 0) price.latency += static_cast<double>(m.summed) / sums;
  return price;
}

}  // namespace lockstep
