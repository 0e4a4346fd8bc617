// The axes of the mesh that messages belong to.
#pragma once
#include <array>
#include <string>
#include <string_view>

#include "spec/layout/layout_spec.h"

namespace lockstep {

// Whom a message is between: ranks that have the same weights (dp, and cp with it), other layers, other parts of every
// sample, or other parts of every layer.
enum class MeshAxis { dp, pp, cp, tp };
inline constexpr std::array kMeshAxes{MeshAxis::dp, MeshAxis::pp, MeshAxis::cp, MeshAxis::tp};
constexpr std::string_view name_of(MeshAxis axis) {
  constexpr std::string_view kNames[] = {"dp", "pp", "cp", "tp"};
  return kNames[static_cast<int>(axis)];
}

// By the group's name (parallel/mesh_groups.h, context_parallel.h, partial_gradients.h); an axis that has all ranks is
// the world, but for cp.
inline MeshAxis axis_of(const std::string& group, const LayoutSpec& layout) {
  if (group == "cp" || group == "cp ring" || group == "cp heads") return MeshAxis::cp;
  if (group == "tp" || group == "copies of heads" || layout.tp == layout.ranks()) return MeshAxis::tp;
  return group == "pp" || layout.pp == layout.ranks() ? MeshAxis::pp : MeshAxis::dp;
}

}  // namespace lockstep
