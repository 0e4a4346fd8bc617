// The mesh drawn: every rank at its place in dp × pp × cp × tp, and below it the groups along each axis, which are the
// ranks that talk to each other.
#pragma once
#include <string>

#include "spec/layout/layout_spec.h"

namespace lockstep {

std::string mesh_picture(const LayoutSpec& layout);

}  // namespace lockstep
