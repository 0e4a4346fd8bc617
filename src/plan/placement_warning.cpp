#include "plan/placement_warning.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "telemetry/number_text.h"

namespace lockstep {

namespace {

struct NotValid {};

bool is_valid_layout(const RunSpec& spec, const LayoutSpec& layout) {
  const LayoutFault fail = [](std::string_view, const std::string&, const std::string&) { throw NotValid{}; };
  try {
    check_layout(spec.train.global_batch, layout, fail);
    check_model_layout(spec.model, spec.data.seq, layout, fail);
  } catch (const NotValid&) {
    return false;
  }
  return true;
}

bool fits_nodes(const LayoutSpec& layout, GroupKind kind, const NodeMap& nodes) {
  return groups_on_nodes(layout, kind, nodes).inside();
}

// The same ranks with a smaller tp or cp; what is left over goes to dp or pp.
LayoutSpec with_smaller(const LayoutSpec& layout, MeshAxis axis, std::int64_t value, std::int64_t LayoutSpec::*other) {
  LayoutSpec l = layout;
  std::int64_t& changed = axis == MeshAxis::tp ? l.tp : l.cp;
  l.*other *= changed / value;
  changed = value;
  const LayoutSpec usual;
  if (l.tp == 1) {
    l.sp = Switch::off;
    l.tp_chunks = usual.tp_chunks;
  }
  if (l.cp_kind.form == CpKind::Form::factors && axis == MeshAxis::cp) l.cp_kind = usual.cp_kind;
  return l;
}

// The largest value that keeps the axis inside nodes, cp together with tp where that is possible.
struct SmallerAxis {
  std::int64_t value = 0;  // none is valid
  std::string text = {};   // "tp=4 with dp=4"
};

SmallerAxis smaller_axis(const RunSpec& spec, MeshAxis axis, const NodeMap& nodes) {
  const bool tp = axis == MeshAxis::tp;
  const std::int64_t now = tp ? spec.layout.tp : spec.layout.cp;
  for (const bool both : {true, false})
    for (std::int64_t value = now - 1; value > 0; --value) {
      if (now % value != 0) continue;
      for (const bool to_dp : {true, false}) {
        const LayoutSpec l = with_smaller(spec.layout, axis, value, to_dp ? &LayoutSpec::dp : &LayoutSpec::pp);
        const bool inside = ((!both && !tp) || fits_nodes(l, GroupKind::tp, nodes)) &&
                            ((!both && tp) || fits_nodes(l, GroupKind::cp, nodes));
        if (!inside || !is_valid_layout(spec, l)) continue;
        return {value, fmt::format("{}={} with {}={}", name_of(axis), value, to_dp ? "dp" : "pp", to_dp ? l.dp : l.pp)};
      }
    }
  return {};
}

std::string remedy_of(const RunSpec& spec, MeshAxis axis, const NodeMap& nodes) {
  const LayoutSpec& l = spec.layout;
  const GroupKind kind = axis == MeshAxis::tp ? GroupKind::tp : GroupKind::cp;
  const std::int64_t block = axis == MeshAxis::tp ? l.tp : l.tp * l.cp;  // consecutive ranks that belong together
  const NodeMap ordered = nodes.in_order();
  const std::string by_node = "number the ranks node by node, as mpirun --map-by slot does";
  if (fits_nodes(l, kind, ordered)) return by_node;
  const std::int64_t each = l.ranks() / nodes.nodes();
  if (l.ranks() % nodes.nodes() == 0 && fits_nodes(l, kind, NodeMap::consecutive(l.ranks(), each)))
    return fmt::format("start {} ranks on each of the {} nodes, as mpirun --map-by ppr:{}:node does", each,
                       nodes.nodes(), each);
  const SmallerAxis as_they_are = smaller_axis(spec, axis, nodes), in_order = smaller_axis(spec, axis, ordered);
  std::string remedy;
  if (in_order.value > as_they_are.value)
    remedy = fmt::format("{}, and use {}", by_node, in_order.text);
  else if (as_they_are.value > 0)
    remedy = fmt::format("use {}", as_they_are.text);
  return fmt::format("{}{} {} ranks{}", remedy, remedy.empty() ? "use nodes with" : ", or nodes with",
                     block > nodes.most() ? fmt::format("at least {}", block) : fmt::format("a multiple of {}", block),
                     nodes.per_node() > 0 ? "" : ", numbered node by node");
}

std::string rate_of_network(const NetworkRate& rate) {
  return rate.bytes_per_second >= 1e8 ? fmt::format("{:.3g} GB/s", rate.bytes_per_second / 1e9)
                                      : fmt::format("{:.3g} MB/s", rate.bytes_per_second / 1e6);
}

std::string crossing_line(const RunSpec& spec, const PlacementCosts& costs, MeshAxis axis, const NodeMap& nodes,
                          const std::optional<NetworkRate>& rate) {
  const Crossing& of = costs.of(axis);
  // One rank of a node sends for all of it, or a network of the node is shared: the node's bytes are what counts.
  const bool by_node = rate ? rate->of_node : costs.route == Route::leaders;
  const double bytes = by_node ? of.most_node : of.most_rank;
  std::string line = fmt::format(
      "{}={} crosses nodes of {} rank{}: {} per step{} leave the node", name_of(axis),
      axis == MeshAxis::tp ? spec.layout.tp : spec.layout.cp,
      costs.fewest == costs.most ? fmt::format("{}", costs.most) : fmt::format("{} to {}", costs.fewest, costs.most),
      costs.most == 1 ? "" : "s", byte_text(static_cast<std::int64_t>(bytes)), by_node ? "" : " and rank");
  if (rate && rate->bytes_per_second > 0)
    line += fmt::format(", about {:.3g} s at {}", bytes / rate->bytes_per_second, rate_of_network(*rate));
  return line + "; " + remedy_of(spec, axis, nodes);
}

}  // namespace

NetworkRate network_rate(double sent_per_second, const NodeMap& nodes, Route route) {
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(nodes.ranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const std::vector<double> crossing =
      crossing_of_call(CommOp::all_reduce, DType::f32, ReduceKind::canonical, sent_per_second, sent_per_second,
                       NodeLabels(nodes).of(ranks), route);
  std::vector<double> by_node(static_cast<std::size_t>(nodes.nodes()));
  for (std::size_t rank = 0; rank < crossing.size(); ++rank)
    by_node[static_cast<std::size_t>(nodes.node_of(static_cast<std::int64_t>(rank)))] += crossing[rank];
  return {.bytes_per_second = *std::ranges::max_element(by_node), .of_node = true};
}

std::vector<std::string> placement_warnings(const RunSpec& spec, const PlacementCosts& costs, const NodeMap& nodes,
                                            const std::optional<NetworkRate>& rate) {
  for (const MeshAxis axis : {MeshAxis::tp, MeshAxis::cp})
    if (costs.spans(axis)) return {crossing_line(spec, costs, axis, nodes, rate)};
  return {};
}

}  // namespace lockstep
