#include "plan/placement_costs.h"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace lockstep {

namespace {

// By the names that communicators have (parallel/mesh_groups.h, zero_groups.h, context_parallel.h,
// partial_gradients.h, compressed_sums.h); an axis that has all ranks is the world.
GroupKind kind_of_group(const std::string& name, const LayoutSpec& l, std::int64_t kv_heads) {
  const auto named = [&] {
    if (name == "tp" || (name == "world" && l.tp == l.ranks())) return GroupKind::tp;
    if (name == "pp" || (name == "world" && l.pp == l.ranks())) return GroupKind::pp;
    if (name == "dp" || name == "compressed" || (name == "world" && l.replicas() == l.ranks()))
      return GroupKind::replicas;
    if (name == "copies of heads") return GroupKind::kv_copies;
    if (name == "cp") return GroupKind::cp;
    if (name == "cp ring") return GroupKind::cp_ring;
    if (name == "cp heads") return GroupKind::cp_heads;
    if (name == "shard") return GroupKind::shard;
    if (name == "copies") return GroupKind::copies;
    return GroupKind::world;
  };
  return usual_kind(l, named(), kv_heads);
}

using Calls = std::vector<const GroupMessages*>;
using CallsByStage = std::vector<Calls>;

// Gradients that cp ranks sum are of the dp axis, though dp may be 1 and the ranks those of cp.
using CallsByKind = std::map<std::pair<GroupKind, MeshAxis>, CallsByStage>;
CallsByKind calls_by_kind(const RunSpec& spec, const std::vector<Plan>& stages) {
  CallsByKind calls;
  for (std::size_t stage = 0; stage < stages.size(); ++stage)
    for (const GroupMessages& of : stages[stage].by_group) {
      CallsByStage& found =
          calls[{kind_of_group(of.group, spec.layout, spec.model.kv_heads), axis_of(of.group, spec.layout)}];
      found.resize(stages.size());
      found[stage].push_back(&of);
    }
  return calls;
}

// Of one group of a stage; of a pipeline, whose members are the stages, each member's own.
std::vector<double> crossing_of_group(const CallsByStage& calls, bool pipeline, std::size_t stage,
                                      const std::vector<std::int32_t>& labels, ReduceKind reduce, Route route) {
  std::vector<double> bytes(labels.size());
  const auto add = [&](const std::vector<double>& more) {
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] += more[i];
  };
  if (pipeline) {
    for (std::size_t member = 0; member < labels.size(); ++member)
      for (const GroupMessages* of : calls[member])
        if (of->op == CommOp::send && labels[static_cast<std::size_t>(of->peer)] != labels[member])
          bytes[member] += static_cast<double>(of->of.bytes_sent);
    return bytes;
  }
  for (const GroupMessages* of : calls[stage]) {
    if (of->op == CommOp::send) {  // member 0's: the others send as far
      add(crossing_of_send(static_cast<double>(of->of.bytes_sent), of->peer, labels));
      continue;
    }
    const double received = static_cast<double>(of->of.received * size_of(of->dtype));
    const std::vector<double> one =
        crossing_of_call(of->op, of->dtype, reduce, static_cast<double>(of->of.bytes_sent), received, labels, route);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] += one[i];
  }
  return bytes;
}

Crossing crossing_by_rank(const std::vector<double>& ranks, const NodeMap& nodes) {
  Crossing of;
  std::vector<double> by_node(static_cast<std::size_t>(nodes.nodes()));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    of.most_rank = std::max(of.most_rank, ranks[rank]);
    of.total += ranks[rank];
    by_node[static_cast<std::size_t>(nodes.node_of(static_cast<std::int64_t>(rank)))] += ranks[rank];
  }
  of.most_node = *std::ranges::max_element(by_node);
  of.mean_rank = of.total / static_cast<double>(ranks.size());
  of.mean_node = of.total / static_cast<double>(by_node.size());
  return of;
}

}  // namespace

bool PlacementCosts::spans(MeshAxis axis) const {
  return std::ranges::any_of(kinds, [&](const Kind& kind) { return kind.axis == axis && !kind.on_nodes.inside(); });
}

PlacementCosts placement_costs(const RunSpec& spec, const std::vector<Plan>& stages, const NodeMap& nodes,
                               Route route) {
  const LayoutSpec& layout = spec.layout;
  if (layout.servers > 0)
    throw UserError(ExitCode::usage, "what parameter servers send between hosts is not counted",
                    "leave the hosts out, or use layout.dp_kind=ddp, which learns the same");
  const std::int64_t kv_heads = spec.model.kv_heads;
  PlacementCosts costs{.route = route,
                       .ranks = layout.ranks(),
                       .nodes = nodes.nodes(),
                       .fewest = nodes.fewest(),
                       .most = nodes.most(),
                       .kinds = {},
                       .axes = {},
                       .all = {}};
  NodeLabels labels(nodes);
  std::map<MeshAxis, std::vector<double>> axes;
  std::vector<double> all(static_cast<std::size_t>(layout.ranks()));
  for (const auto& [key, calls] : calls_by_kind(spec, stages)) {
    const GroupKind kind = key.first;
    PlacementCosts::Kind row{
        .on_nodes = groups_on_nodes(layout, kind, nodes, kv_heads), .axis = key.second, .sent = 0, .crossing = {}};
    for (const Calls& stage : calls) {
      double sent = 0;
      for (const GroupMessages* of : stage) sent += static_cast<double>(of->of.bytes_sent);
      row.sent = std::max(row.sent, sent);
    }
    if (!row.on_nodes.inside()) {
      std::vector<double> of_kind(all.size());
      std::unordered_map<std::int64_t, std::vector<double>> known;
      each_group(
          layout, kind, nodes,
          [&](std::span<const std::int64_t> ranks, std::int64_t place) {
            const std::int64_t stage = layout.stage(ranks.front());
            const std::int64_t at = place < 0 ? -1 : place * layout.pp + stage;
            auto found = known.find(at);
            if (at < 0 || found == known.end())
              found = known
                          .insert_or_assign(
                              at, crossing_of_group(calls, kind == GroupKind::pp, static_cast<std::size_t>(stage),
                                                    labels.of(ranks), layout.reduce, route))
                          .first;
            for (std::size_t i = 0; i < ranks.size(); ++i)
              of_kind[static_cast<std::size_t>(ranks[i])] += found->second[i];
          },
          kv_heads);
      row.crossing = crossing_by_rank(of_kind, nodes);
      std::vector<double>& axis = axes[key.second];
      axis.resize(all.size());
      for (std::size_t rank = 0; rank < all.size(); ++rank) {
        axis[rank] += of_kind[rank];
        all[rank] += of_kind[rank];
      }
    }
    costs.kinds.push_back(row);
  }
  for (const auto& [axis, by_rank] : axes)
    costs.axes[static_cast<std::size_t>(axis)] = crossing_by_rank(by_rank, nodes);
  costs.all = crossing_by_rank(all, nodes);
  return costs;
}

}  // namespace lockstep
