#include "cli/placement_view.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/text_table.h"
#include "telemetry/number_text.h"

namespace lockstep {

namespace {

std::string from_to(std::int64_t fewest, std::int64_t most) {
  return fewest == most ? fmt::format("{}", most) : fmt::format("{}-{}", fewest, most);
}

std::string crossing_text(double bytes) { return bytes > 0 ? byte_text(static_cast<std::int64_t>(bytes)) : "-"; }

nlohmann::ordered_json crossing_json(const Crossing& of) {
  return {{"rank", of.mean_rank},
          {"rank_most", of.most_rank},
          {"node", of.mean_node},
          {"node_most", of.most_node},
          {"all", of.total}};
}

nlohmann::ordered_json range_json(std::int64_t fewest, std::int64_t most) {
  return {{"fewest", fewest}, {"most", most}};
}

}  // namespace

std::string placement_table(const PlacementCosts& costs, const std::vector<std::string>& warnings) {
  TextTable table{
      .title =
          fmt::format("what crosses {} node{} of {} ranks, per step; {}", grouped_digits(costs.nodes),
                      costs.nodes == 1 ? "" : "s", from_to(costs.fewest, costs.most),
                      costs.route == Route::direct ? "every rank sends for itself" : "one rank of a node sends for it"),
      .heads = {"group", "ranks", "on nodes", "together", "sent by a rank", "crosses, of a rank", "of a node"},
      .rows = {}};
  for (const PlacementCosts::Kind& kind : costs.kinds) {
    const GroupsOnNodes& on = kind.on_nodes;
    const std::string name(name_of(on.kind));
    table.rows.push_back({kind.axis == MeshAxis::dp && on.kind == GroupKind::cp ? name + ", gradients" : name,
                          fmt::format("{}", on.size), from_to(on.fewest_nodes, on.most_nodes),
                          from_to(on.fewest_together, on.most_together), crossing_text(kind.sent),
                          crossing_text(kind.crossing.most_rank), crossing_text(kind.crossing.most_node)});
  }
  table.rows.push_back({"all", "", "", "", "", crossing_text(costs.all.most_rank), crossing_text(costs.all.most_node)});
  std::string text = table.plain();
  for (const std::string& line : warnings) text += "\n" + line;
  return text;
}

nlohmann::ordered_json placement_json(const PlacementCosts& costs, const std::vector<std::string>& warnings) {
  using Json = nlohmann::ordered_json;
  Json groups = Json::array(), axes = Json::object();
  for (const PlacementCosts::Kind& kind : costs.kinds) {
    const GroupsOnNodes& on = kind.on_nodes;
    groups.push_back({{"group", name_of(on.kind)},
                      {"axis", name_of(kind.axis)},
                      {"ranks", on.size},
                      {"groups", on.groups},
                      {"spanning", on.spanning},
                      {"nodes", range_json(on.fewest_nodes, on.most_nodes)},
                      {"together", range_json(on.fewest_together, on.most_together)},
                      {"alike", on.alike},
                      {"exchange_share", on.exchange.mean},
                      {"ring_share", on.ring.mean},
                      {"sent_bytes", kind.sent},
                      {"crossing_bytes", crossing_json(kind.crossing)}});
  }
  for (const MeshAxis axis : kMeshAxes) axes[std::string(name_of(axis))] = crossing_json(costs.of(axis));
  return {{"nodes", costs.nodes},
          {"ranks_per_node", range_json(costs.fewest, costs.most)},
          {"route", costs.route == Route::direct ? "direct" : "leaders"},
          {"groups", groups},
          {"crossing_bytes", crossing_json(costs.all)},
          {"axes", axes},
          {"warnings", warnings}};
}

}  // namespace lockstep
