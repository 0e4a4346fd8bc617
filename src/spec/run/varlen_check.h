// What does not go together with samples without padding (data.documents = "varlen"), told through `fail`.
#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "spec/run/run_spec.h"

namespace lockstep {

using VarlenFault = std::function<void(std::string_view section, std::string_view key, const std::string& problem,
                                       const std::string& remedy)>;
void check_varlen(const RunSpec& spec, const VarlenFault& fail);

}  // namespace lockstep
