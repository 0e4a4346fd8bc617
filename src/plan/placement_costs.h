// What of a step's messages crosses nodes: bytes per rank and per node, by kind of group and by axis of the mesh.
//
// The bytes that ranks send are the plan's (plan/plan.h), of the first rank of each stage: the others of a stage send
// as much, but for a rest that does not divide. Which of them leave a node depends on where the groups' ranks are
// (spec/machine/placement.h) and on how ranks of different nodes reach each other (plan/call_crossing.h). Numbers
// (losses, norms), and what messages carry beside tensors, are not counted.
#pragma once
#include <array>
#include <vector>

#include "plan/call_crossing.h"
#include "plan/plan.h"
#include "spec/machine/placement.h"

namespace lockstep {

// Bytes per step. What a leader sends is told in equal parts of the ranks of its group on its node.
struct Crossing {
  double mean_rank = 0, most_rank = 0;
  double mean_node = 0, most_node = 0;
  double total = 0;
};

struct PlacementCosts {
  struct Kind {
    GroupsOnNodes on_nodes;
    MeshAxis axis = MeshAxis::dp;
    double sent = 0;  // bytes per step that a rank sends in these groups, of the stage that sends most
    Crossing crossing;
  };
  Route route = Route::direct;
  std::int64_t ranks = 1, nodes = 1, fewest = 1, most = 1;  // ranks of a node
  std::vector<Kind> kinds;       // the groups that have more than one rank, in the order of GroupKind
  std::array<Crossing, 4> axes;  // by MeshAxis
  Crossing all;

  const Crossing& of(MeshAxis axis) const { return axes[static_cast<std::size_t>(axis)]; }
  bool spans(MeshAxis axis) const;  // a group of it has ranks on several nodes
};

// `stages`: plan_stages(spec). The nodes are of as many ranks as the layout has.
PlacementCosts placement_costs(const RunSpec& spec, const std::vector<Plan>& stages, const NodeMap& nodes, Route route);

}  // namespace lockstep
