// Groups of the mesh on nodes, against a count over all pairs of ranks.
#include "spec/machine/placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <map>
#include <random>
#include <set>

namespace lockstep::tests {
namespace {

// The groups as parallel/mesh_groups.h, zero_groups.h and context_parallel.h define them: ranks of one color.
std::int64_t color_of(const LayoutSpec& l, GroupKind kind, std::int64_t rank, std::int64_t kv_heads) {
  const std::int64_t dp = l.dp_rank(rank), pp = l.stage(rank), cp = l.cp_rank(rank), tp = l.tp_rank(rank);
  const auto color = [](std::initializer_list<std::int64_t> places) {
    std::int64_t all = 0;
    for (const std::int64_t place : places) all = all * 1000 + place;
    return all;
  };
  const std::int64_t heads = l.context_split(rank).heads;
  switch (kind) {
    case GroupKind::tp:
      return color({dp, pp, cp});
    case GroupKind::kv_copies:
      return color({dp, pp, cp, kv_heads > 0 && kv_heads < l.tp ? tp * kv_heads / l.tp : tp});
    case GroupKind::cp:
      return color({dp, pp, tp});
    case GroupKind::cp_heads:
      return color({dp, pp, tp, cp / heads});
    case GroupKind::cp_ring:
      return color({dp, pp, tp, cp % heads});
    case GroupKind::pp:
      return color({dp, cp, tp});
    case GroupKind::dp:
      return color({pp, cp, tp});
    case GroupKind::replicas:
      return color({pp, tp});
    case GroupKind::shard:
      return color({pp, tp, l.replica(rank) / l.shards()});
    case GroupKind::copies:
      return color({pp, tp, l.replica(rank) % l.shards()});
    case GroupKind::world:
      break;
  }
  return 0;
}

// By pairs.
GroupsOnNodes counted(const LayoutSpec& l, GroupKind kind, const NodeMap& nodes, std::int64_t kv_heads) {
  GroupsOnNodes all;
  all.kind = kind;
  const std::int64_t ranks = l.ranks();
  std::set<std::int64_t> colors, spanning;
  std::set<std::vector<std::int64_t>> ways;
  all.fewest_nodes = all.fewest_together = ranks;
  double lines = 0;
  for (std::int64_t a = 0; a < ranks; ++a) {
    const std::int64_t color = color_of(l, kind, a, kv_heads);
    std::vector<std::int64_t> members, numbers;
    std::map<std::int64_t, std::int64_t> by_node, number;
    for (std::int64_t b = 0; b < ranks; ++b) {
      if (color_of(l, kind, b, kv_heads) != color) continue;
      members.push_back(b);
      ++by_node[nodes.node_of(b)];
      numbers.push_back(number.emplace(nodes.node_of(b), std::ssize(number)).first->second);
    }
    const auto far = [&](std::int64_t b) { return nodes.node_of(a) != nodes.node_of(b) ? 1.0 : 0.0; };
    all.size = std::ssize(members);
    colors.insert(color);
    ways.insert(numbers);
    if (by_node.size() > 1) spanning.insert(color);
    all.fewest_nodes = std::min(all.fewest_nodes, std::ssize(by_node));
    all.most_nodes = std::max(all.most_nodes, std::ssize(by_node));
    for (const auto& [node, count] : by_node) {
      all.fewest_together = std::min(all.fewest_together, count);
      all.most_together = std::max(all.most_together, count);
    }
    if (all.size == 1) continue;
    double exchange = 0;
    for (const std::int64_t b : members) exchange += far(b) / static_cast<double>(all.size - 1);
    all.exchange.mean += exchange / static_cast<double>(ranks);
    all.exchange.most = std::max(all.exchange.most, exchange);
    const auto next = std::ranges::upper_bound(members, a);
    const double ring = far(next == members.end() ? members.front() : *next);
    all.ring.mean += ring / static_cast<double>(ranks);
    all.ring.most = std::max(all.ring.most, ring);
    if (next == members.end()) continue;
    ++lines;
    all.line.mean += ring;
    all.line.most = std::max(all.line.most, ring);
  }
  if (lines > 0) all.line.mean /= lines;
  all.groups = std::ssize(colors);
  all.spanning = std::ssize(spanning);
  all.alike = ways.size() == 1;
  return all;
}

void expect_as_counted(const LayoutSpec& layout, const NodeMap& nodes, const std::string& where) {
  for (const std::int64_t kv_heads : {0, 1, 2})
    for (int k = 0; k < kGroupKinds; ++k) {
      const GroupKind kind = static_cast<GroupKind>(k);
      if (kind == GroupKind::kv_copies ? kv_heads > 0 && layout.tp % kv_heads != 0 : kv_heads != 0) continue;
      SCOPED_TRACE(fmt::format("{} of {}, {}", name_of(kind), to_text(layout), where));
      const GroupsOnNodes is = groups_on_nodes(layout, kind, nodes, kv_heads),
                          should = counted(layout, kind, nodes, kv_heads);
      ASSERT_EQ(is.size, should.size);
      ASSERT_EQ(is.groups, should.groups);
      ASSERT_EQ(is.spanning, should.spanning);
      ASSERT_EQ(is.fewest_nodes, should.fewest_nodes);
      ASSERT_EQ(is.most_nodes, should.most_nodes);
      ASSERT_EQ(is.fewest_together, should.fewest_together);
      ASSERT_EQ(is.most_together, should.most_together);
      ASSERT_EQ(is.alike, should.alike);
      const auto same = [](const CrossingShare& a, const CrossingShare& b) {
        return std::abs(a.mean - b.mean) < 1e-12 && std::abs(a.most - b.most) < 1e-12;
      };
      ASSERT_TRUE(same(is.exchange, should.exchange)) << is.exchange.mean << " for " << should.exchange.mean;
      ASSERT_TRUE(same(is.ring, should.ring)) << is.ring.mean << " for " << should.ring.mean;
      ASSERT_TRUE(same(is.line, should.line)) << is.line.mean << " for " << should.line.mean;
    }
}

std::vector<LayoutSpec> small_meshes(std::int64_t most) {
  std::vector<LayoutSpec> all;
  for (std::int64_t dp = 1; dp <= 4; ++dp)
    for (std::int64_t pp = 1; pp <= 3; ++pp)
      for (std::int64_t cp = 1; cp <= 4; ++cp)
        for (std::int64_t tp = 1; tp <= 4; ++tp) {
          LayoutSpec layout{.dp = dp, .pp = pp, .cp = cp, .tp = tp};
          if (layout.ranks() > most) continue;
          all.push_back(layout);
          if (cp == 4) {
            layout.cp_kind = CpKind::of_factors(2, 2);
            all.push_back(layout);
          }
          layout.zero = 2;
          for (std::int64_t shard = 2; shard < layout.replicas(); ++shard) {
            layout.shard = shard;
            if (layout.replicas() % shard == 0) all.push_back(layout);
          }
        }
  return all;
}

TEST(Placement, GroupsOfConsecutiveRanksAreAsCountedByPairs) {
  for (const LayoutSpec& layout : small_meshes(24))
    for (std::int64_t per_node = 1; per_node <= layout.ranks(); ++per_node) {
      expect_as_counted(layout, NodeMap::consecutive(layout.ranks(), per_node), fmt::format("{} on a node", per_node));
      if (HasFatalFailure()) return;
    }
}

TEST(Placement, GroupsOfAnyHostsAreAsCountedByPairs) {
  std::mt19937 random(7);
  for (const LayoutSpec& layout : small_meshes(24))
    for (int round = 0; round < 3; ++round) {
      std::vector<std::string> hosts;
      const std::int64_t count = 1 + static_cast<std::int64_t>(random() % 4);
      for (std::int64_t rank = 0; rank < layout.ranks(); ++rank)
        hosts.push_back(fmt::format("h{}", round == 0 ? rank % count : static_cast<std::int64_t>(random()) % count));
      expect_as_counted(layout, NodeMap::of_hosts(hosts), fmt::format("{}", fmt::join(hosts, " ")));
      if (HasFatalFailure()) return;
    }
}

TEST(Placement, TensorParallelRanksThatDivideANodeStayInside) {
  const LayoutSpec layout{.dp = 4, .pp = 2, .tp = 8};
  const GroupsOnNodes tp = groups_on_nodes(layout, GroupKind::tp, NodeMap::consecutive(64, 8)),
                      dp = groups_on_nodes(layout, GroupKind::dp, NodeMap::consecutive(64, 8)),
                      of_4 = groups_on_nodes(layout, GroupKind::tp, NodeMap::consecutive(64, 4));
  EXPECT_TRUE(tp.inside() && tp.alike);
  EXPECT_EQ(dp.spanning, 16);
  EXPECT_EQ(dp.fewest_nodes, 4);
  EXPECT_DOUBLE_EQ(dp.exchange.mean, 1);
  EXPECT_EQ(of_4.spanning, 8);
  EXPECT_DOUBLE_EQ(of_4.exchange.mean, 4.0 / 7);
  EXPECT_DOUBLE_EQ(of_4.ring.mean, 2.0 / 8);
}

TEST(Placement, HostsAreNodesWhateverTheirNames) {
  const std::vector<std::string> turns{"b", "a", "b", "a"}, blocks{"b", "b", "a", "a"};
  const NodeMap alternating = NodeMap::of_hosts(turns), consecutive = NodeMap::of_hosts(blocks);
  EXPECT_EQ(alternating.nodes(), 2);
  EXPECT_EQ(alternating.per_node(), 0);
  EXPECT_EQ(consecutive.per_node(), 2);
  EXPECT_EQ(alternating.in_order().per_node(), 2);
  EXPECT_EQ(NodeMap::of_hosts(std::vector<std::string>{"a", "a", "a", "b"}).per_node(), 3);
  EXPECT_EQ(NodeMap::of_hosts(std::vector<std::string>{"a", "b", "b"}).per_node(), 0);
}

// Seconds of a run's own processor time: others use the machine too.
double seconds_of(const std::function<void()>& work) {
  double least = 1e9;
  for (int round = 0; round < 5; ++round) {
    const std::clock_t begin = std::clock();
    work();
    least = std::min(least, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  return least;
}

TEST(Placement, AMillionRanksTakeMilliseconds) {
  const LayoutSpec mesh{.dp = 3125, .pp = 10, .cp = 4, .tp = 8, .zero = 3, .shard = 500};
  ASSERT_EQ(mesh.ranks(), 1'000'000);
  const double seconds = seconds_of([&] {
    const NodeMap nodes = NodeMap::consecutive(mesh.ranks(), 8);
    for (const GroupKind kind : group_kinds_of(mesh)) {
      const GroupsOnNodes on = groups_on_nodes(mesh, kind, nodes);
      EXPECT_EQ(on.inside(), kind == GroupKind::tp) << name_of(kind);
    }
  });
  std::printf("%.1f ms for a million ranks, all kinds of groups\n", seconds * 1e3);
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(seconds, 0.05);
#endif
}

}  // namespace
}  // namespace lockstep::tests
