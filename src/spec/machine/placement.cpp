#include "spec/machine/placement.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "base/error.h"
#include "base/integers.h"

namespace lockstep {

NodeMap NodeMap::of_sizes(std::vector<std::int64_t> sizes) {
  NodeMap map;
  for (std::size_t node = 0; node < sizes.size(); ++node)
    map.nodes_.insert(map.nodes_.end(), static_cast<std::size_t>(sizes[node]), static_cast<std::int32_t>(node));
  const auto full = [&](std::int64_t size) { return size == sizes.front(); };
  if (std::all_of(sizes.begin(), sizes.end() - 1, full) && sizes.back() <= sizes.front()) map.per_node_ = sizes.front();
  map.sizes_ = std::move(sizes);
  return map;
}

NodeMap NodeMap::consecutive(std::int64_t ranks, std::int64_t per_node) {
  LOCKSTEP_CHECK(ranks > 0 && per_node > 0, "{} ranks, {} on each node", ranks, per_node);
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(ceil_div(ranks, per_node)), per_node);
  sizes.back() = ranks - (std::ssize(sizes) - 1) * per_node;
  return of_sizes(std::move(sizes));
}

NodeMap NodeMap::of_hosts(std::span<const std::string> hosts) {
  LOCKSTEP_CHECK(!hosts.empty(), "no ranks");
  NodeMap map;
  std::unordered_map<std::string_view, std::int32_t> numbers;
  for (const std::string& host : hosts) {
    const auto [found, first] = numbers.emplace(host, static_cast<std::int32_t>(numbers.size()));
    if (first) map.sizes_.push_back(0);
    ++map.sizes_[static_cast<std::size_t>(found->second)];
    map.nodes_.push_back(found->second);
  }
  if (std::ranges::is_sorted(map.nodes_)) return of_sizes(std::move(map.sizes_));
  return map;
}

NodeMap NodeMap::in_order() const { return of_sizes(sizes_); }

std::int64_t NodeMap::fewest() const { return *std::ranges::min_element(sizes_); }
std::int64_t NodeMap::most() const { return *std::ranges::max_element(sizes_); }

std::string_view name_of(GroupKind kind) {
  constexpr std::string_view kNames[kGroupKinds] = {
      "tp", "tp copies of heads", "cp", "cp heads", "cp ring", "pp", "dp", "dp x cp", "shard", "copies", "all ranks"};
  return kNames[static_cast<int>(kind)];
}

namespace {

// A group is `size` ranks that are `stride` apart: in rank numbers, or along a line of replicas.
struct GroupStride {
  std::int64_t size, stride;
  bool of_replicas = false;
};

GroupStride stride_of(const LayoutSpec& l, GroupKind kind, std::int64_t kv_heads) {
  const ContextFactors context = l.cp_kind.factors(l.cp);
  const std::int64_t sharers = l.shards();
  switch (kind) {
    case GroupKind::tp:
      return {l.tp, 1};
    case GroupKind::kv_copies:
      return {kv_heads > 0 && kv_heads < l.tp ? l.tp / kv_heads : 1, 1};
    case GroupKind::cp:
      return {l.cp, l.tp};
    case GroupKind::cp_heads:
      return {context.heads, l.tp};
    case GroupKind::cp_ring:
      return {context.ring, l.tp * context.heads};
    case GroupKind::pp:
      return {l.pp, l.cp * l.tp};
    case GroupKind::dp:
      return {l.dp, l.pp * l.cp * l.tp};
    case GroupKind::replicas:
      return {l.replicas(), 1, true};
    case GroupKind::shard:
      return {sharers, 1, true};
    case GroupKind::copies:
      return {l.replicas() / sharers, sharers, true};
    case GroupKind::world:
      break;
  }
  return {l.ranks(), 1};
}

}  // namespace

GroupSizes group_sizes(const LayoutSpec& layout, GroupKind kind, std::int64_t kv_heads) {
  const std::int64_t size = stride_of(layout, kind, kv_heads).size;
  return {size, layout.ranks() / size};
}

void each_group(const LayoutSpec& layout, GroupKind kind, const NodeMap& nodes, const VisitGroup& visit,
                std::int64_t kv_heads) {
  LOCKSTEP_CHECK(nodes.ranks() == layout.ranks(), "nodes of {} ranks for {}", nodes.ranks(), layout.ranks());
  const GroupStride group = stride_of(layout, kind, kv_heads);
  const std::int64_t stage = layout.cp * layout.tp, copy = layout.pp * stage, per_node = nodes.per_node();
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(group.size));
  // A last node with fewer ranks is like the others: what would follow in it is not there to be asked for.
  const auto show = [&] {
    const std::int64_t first = ranks.front();
    // Along a line of replicas the distance to the next rank depends on the place in cp.
    visit(ranks, per_node > 0 ? first % per_node * layout.cp + (group.of_replicas ? layout.cp_rank(first) : 0) : -1);
  };
  // The positions first, first + stride, … of a line.
  const auto each_in_line = [&](std::int64_t length, const auto& rank_at) {
    for (std::int64_t block = 0; block < length; block += group.size * group.stride)
      for (std::int64_t first = block; first < block + group.stride; ++first) {
        for (std::int64_t i = 0; i < group.size; ++i)
          ranks[static_cast<std::size_t>(i)] = rank_at(first + i * group.stride);
        show();
      }
  };
  if (!group.of_replicas) return each_in_line(layout.ranks(), [](std::int64_t at) { return at; });
  for (std::int64_t begin = 0; begin < copy; begin += stage)
    for (std::int64_t tp = 0; tp < layout.tp; ++tp)
      each_in_line(layout.replicas(),
                   [&](std::int64_t at) { return begin + tp + at / layout.cp * copy + at % layout.cp * layout.tp; });
}

const std::vector<std::int32_t>& NodeLabels::of(std::span<const std::int64_t> ranks) {
  labels_.clear();
  counts_.clear();
  seen_.clear();
  for (const std::int64_t rank : ranks) {
    std::int32_t& label = label_[static_cast<std::size_t>(nodes_.node_of(rank))];
    if (label < 0) {
      label = static_cast<std::int32_t>(counts_.size());
      counts_.push_back(0);
      seen_.push_back(nodes_.node_of(rank));
    }
    ++counts_[static_cast<std::size_t>(label)];
    labels_.push_back(label);
  }
  for (const std::int64_t node : seen_) label_[static_cast<std::size_t>(node)] = -1;
  return labels_;
}

namespace {

// One group on its nodes; shares are sums over its ranks.
struct GroupOnNodes {
  std::vector<std::int32_t> labels;
  std::int64_t nodes, fewest, most;
  CrossingShare exchange, ring, line;
};

GroupOnNodes group_on_nodes(std::span<const std::int64_t> ranks, NodeLabels& labels) {
  GroupOnNodes g{
      .labels = labels.of(ranks), .nodes = 0, .fewest = 0, .most = 0, .exchange = {}, .ring = {}, .line = {}};
  const std::vector<std::int64_t>& counts = labels.counts();
  g.nodes = std::ssize(counts);
  g.fewest = *std::ranges::min_element(counts);
  g.most = *std::ranges::max_element(counts);
  const std::int64_t size = std::ssize(ranks);
  if (g.nodes == 1) return g;
  const double others = static_cast<double>(size - 1);
  for (const std::int64_t here : counts) g.exchange.mean += static_cast<double>(here * (size - here)) / others;
  g.exchange.most = static_cast<double>(size - g.fewest) / others;
  for (std::size_t i = 0; i + 1 < g.labels.size(); ++i) g.line.mean += g.labels[i] != g.labels[i + 1];
  g.ring.mean = g.line.mean + (g.labels.front() != g.labels.back());
  g.line.most = g.ring.most = 1;
  return g;
}

void add_share(CrossingShare& all, const CrossingShare& one) {
  all.mean += one.mean;
  all.most = std::max(all.most, one.most);
}

}  // namespace

GroupsOnNodes groups_on_nodes(const LayoutSpec& layout, GroupKind kind, const NodeMap& nodes, std::int64_t kv_heads) {
  const GroupSizes sizes = group_sizes(layout, kind, kv_heads);
  GroupsOnNodes all{.kind = kind, .size = sizes.size, .groups = sizes.groups, .exchange = {}, .ring = {}, .line = {}};
  NodeLabels labels(nodes);
  std::unordered_map<std::int64_t, GroupOnNodes> known;  // by place
  std::vector<std::int32_t> first;
  std::int64_t seen = 0;
  each_group(
      layout, kind, nodes,
      [&](std::span<const std::int64_t> ranks, std::int64_t place) {
        const auto found = known.find(place);
        const bool fresh = place < 0 || found == known.end();
        if (fresh) known.insert_or_assign(place, group_on_nodes(ranks, labels));
        const GroupOnNodes& g = fresh ? known.at(place) : found->second;
        if (seen++ == 0) {
          first = g.labels;
          all.fewest_nodes = all.most_nodes = g.nodes;
          all.fewest_together = g.fewest;
          all.most_together = g.most;
        }
        all.spanning += g.nodes > 1;
        add_share(all.exchange, g.exchange);
        add_share(all.ring, g.ring);
        add_share(all.line, g.line);
        if (!fresh) return;
        all.fewest_nodes = std::min(all.fewest_nodes, g.nodes);
        all.most_nodes = std::max(all.most_nodes, g.nodes);
        all.fewest_together = std::min(all.fewest_together, g.fewest);
        all.most_together = std::max(all.most_together, g.most);
        all.alike = all.alike && g.labels == first;
      },
      kv_heads);
  const double ranks = static_cast<double>(layout.ranks());
  all.exchange.mean /= ranks;
  all.ring.mean /= ranks;
  all.line.mean /= ranks - static_cast<double>(sizes.size > 1 ? sizes.groups : 0);  // the last of a line sends nothing
  return all;
}

GroupKind usual_kind(const LayoutSpec& layout, GroupKind kind, std::int64_t kv_heads) {
  const std::int64_t size = group_sizes(layout, kind, kv_heads).size;
  switch (kind) {
    case GroupKind::kv_copies:
      return size == layout.tp ? GroupKind::tp : kind;
    case GroupKind::cp_heads:
    case GroupKind::cp_ring:
      return size == layout.cp ? GroupKind::cp : kind;
    case GroupKind::replicas:
    case GroupKind::shard:
    case GroupKind::copies:
      if (size < layout.replicas()) return kind;
      return layout.cp == 1 ? GroupKind::dp : layout.dp == 1 ? GroupKind::cp : GroupKind::replicas;
    default:
      return kind;
  }
}

std::vector<GroupKind> group_kinds_of(const LayoutSpec& layout, std::int64_t kv_heads) {
  std::vector<GroupKind> kinds;
  for (int k = 0; k < static_cast<int>(GroupKind::world); ++k) {
    const GroupKind kind = static_cast<GroupKind>(k);
    const std::int64_t size = group_sizes(layout, kind, kv_heads).size;
    if (size > 1 && usual_kind(layout, kind, kv_heads) == kind) kinds.push_back(kind);
  }
  return kinds;
}

}  // namespace lockstep
