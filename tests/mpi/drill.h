#pragma once
#include <string>

#include "comm/processes/world.h"

namespace lockstep::tests {

// This process's part in a drill (drill.cpp), what it has to say added to the report; its exit status.
int run_drill(const std::string& drill, const std::string& report, const ProcessOptions& options);

}  // namespace lockstep::tests
