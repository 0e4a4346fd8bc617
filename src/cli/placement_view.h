// What crosses nodes, as people and programs read it.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "plan/placement_costs.h"

namespace lockstep {

// A line per kind of group, and the warnings (plan/placement_warning.h) after it.
std::string placement_table(const PlacementCosts& costs, const std::vector<std::string>& warnings);
// {nodes, ranks_per_node{fewest, most}, route, groups[{group, axis, ranks, groups, spanning, nodes{…}, together{…},
//  alike, exchange_share, ring_share, sent_bytes, crossing_bytes{…}}], crossing_bytes{…}, axes{axis: {…}}, warnings[…]}
// where crossing_bytes is {rank, rank_most, node, node_most, all} per step, means unless named otherwise.
nlohmann::ordered_json placement_json(const PlacementCosts& costs, const std::vector<std::string>& warnings);

}  // namespace lockstep
