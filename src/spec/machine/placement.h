// Which ranks share a node, and what that means for the groups of a mesh (parallel/mesh_groups.h).
//
// A node is what has fast links inside it and a slower network to others: a machine with several GPUs, a host. Ranks
// are numbered so that tp ranks are neighbours, then cp, pp and dp; a launcher that gives each node consecutive ranks
// therefore keeps tp inside a node where tp divides the node's devices.
//
// Everything here takes time in proportion to the number of ranks. Where nodes have equally many consecutive ranks,
// groups that begin at the same device of a node are looked at once.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spec/layout/layout_spec.h"

namespace lockstep {

// Rank to node. Nodes are numbered in the order of their first ranks.
class NodeMap {
 public:
  // Consecutive ranks, `per_node` on each node; the last node may have fewer.
  static NodeMap consecutive(std::int64_t ranks, std::int64_t per_node);
  static NodeMap of_hosts(std::span<const std::string> hosts);  // by rank

  std::int64_t ranks() const { return std::ssize(nodes_); }
  std::int64_t nodes() const { return std::ssize(sizes_); }
  std::int64_t node_of(std::int64_t rank) const { return nodes_[static_cast<std::size_t>(rank)]; }
  std::int64_t ranks_on(std::int64_t node) const { return sizes_[static_cast<std::size_t>(node)]; }
  std::int64_t fewest() const;  // ranks of a node
  std::int64_t most() const;
  // Ranks of every node but the last where they are consecutive and equally many; 0: any other way.
  std::int64_t per_node() const { return per_node_; }
  // The same nodes with as many ranks each, numbered node by node.
  NodeMap in_order() const;

 private:
  static NodeMap of_sizes(std::vector<std::int64_t> sizes);

  std::vector<std::int32_t> nodes_;  // by rank
  std::vector<std::int64_t> sizes_;  // by node
  std::int64_t per_node_ = 0;
};

// The groups that ranks exchange in. Their members are in the order of the communicator's ranks.
enum class GroupKind : std::uint8_t {
  tp,
  kv_copies,  // of tp, neighbours that hold the same key/value heads
  cp,
  cp_heads,  // of cp, ranks that exchange heads (Ulysses)
  cp_ring,   // of cp, ranks that pass on keys and values
  pp,
  dp,        // dp alone: ranks that have the same part of every sample
  replicas,  // dp x cp: gradients are summed and ZeRO shards over it
  shard,     // of the replicas, those that share one copy of the state (hybrid sharding)
  copies,    // of the replicas, those that hold the same shard of other copies
  world,     // all ranks
};
inline constexpr int kGroupKinds = 11;
std::string_view name_of(GroupKind kind);

struct GroupSizes {
  std::int64_t size = 1;    // ranks of a group
  std::int64_t groups = 1;  // of this kind
};
// `kv_heads`: of the model, which kv_copies depend on; 0: there are none.
GroupSizes group_sizes(const LayoutSpec& layout, GroupKind kind, std::int64_t kv_heads = 0);

// Calls `visit` with the ranks of each group. `place` is the same for groups whose ranks are on nodes in the same way,
// as far as that is known without looking: any number, or -1.
using VisitGroup = std::function<void(std::span<const std::int64_t> ranks, std::int64_t place)>;
void each_group(const LayoutSpec& layout, GroupKind kind, const NodeMap& nodes, const VisitGroup& visit,
                std::int64_t kv_heads = 0);

// The nodes of a group's ranks, numbered from 0 by first appearance. Work space is kept between calls.
class NodeLabels {
 public:
  explicit NodeLabels(const NodeMap& nodes) : nodes_(nodes), label_(static_cast<std::size_t>(nodes.nodes()), -1) {}
  const std::vector<std::int32_t>& of(std::span<const std::int64_t> ranks);
  const std::vector<std::int64_t>& counts() const { return counts_; }  // ranks by label, of the last call

 private:
  const NodeMap& nodes_;
  std::vector<std::int32_t> label_, labels_;
  std::vector<std::int64_t> counts_, seen_;
};

// The share of what a group's ranks send that leaves their nodes: on average, and of the rank with most.
struct CrossingShare {
  double mean = 0, most = 0;
};

struct GroupsOnNodes {
  GroupKind kind = GroupKind::world;
  std::int64_t size = 1, groups = 1;
  std::int64_t spanning = 0;                            // groups that have ranks on several nodes
  std::int64_t fewest_nodes = 1, most_nodes = 1;        // of a group
  std::int64_t fewest_together = 1, most_together = 1;  // ranks of a group on one of its nodes
  bool alike = true;  // all groups are on nodes in the same way, but for the nodes' numbers
  // Of N ranks with k on a rank's own node: every rank sends equally much to every other, (N - k) / (N - 1); to the
  // next one round a ring; to the next one, and the last sends nothing.
  CrossingShare exchange, ring, line;

  bool inside() const { return spanning == 0; }
};
GroupsOnNodes groups_on_nodes(const LayoutSpec& layout, GroupKind kind, const NodeMap& nodes,
                              std::int64_t kv_heads = 0);

// The kind under which groups with the same ranks are known: dp x cp is dp where there is no cp.
GroupKind usual_kind(const LayoutSpec& layout, GroupKind kind, std::int64_t kv_heads = 0);
// The kinds with more than one rank in a group, each once, without `world`.
std::vector<GroupKind> group_kinds_of(const LayoutSpec& layout, std::int64_t kv_heads = 0);

}  // namespace lockstep
