#pragma once
#include <optional>
#include <string_view>
namespace lockstep {
inline std::optional<int> culprit_in(std::string_view) { return std::nullopt; }
}  // namespace lockstep
