// Which sources this program was built from: two programs of one version may differ in them.
#pragma once
#include <string_view>

namespace lockstep {

// 16 hex digits of a checksum of src/, made when the program is built (cmake/build_id.cmake). The machine that it was
// compiled for, and the compiler, are no part of it.
std::string_view build_id();

}  // namespace lockstep
