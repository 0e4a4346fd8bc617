// The text built into the program: Lockstep's own documents and sources, so that there is always something to train on.
#pragma once
#include <string_view>

namespace lockstep {

std::string_view example_text();

}  // namespace lockstep
