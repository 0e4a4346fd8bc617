// The parts of a checkpoint that groups of replicas have of their own, where they take local steps: the optimizer's
// moments, by the group's number. "m_of_2" is the third group's m.
#pragma once
#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr std::string_view kOfGroup = "_of_";

inline std::string local_part(std::string_view part, std::int64_t group) {
  return fmt::format("{}{}{}", part, kOfGroup, group);
}

// None: all groups have the part alike.
inline std::optional<std::int64_t> group_of_part(std::string_view part) {
  const std::size_t at = part.rfind(kOfGroup);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view number = part.substr(at + kOfGroup.size());
  std::int64_t group = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), group);
  if (error != std::errc{} || end != number.data() + number.size()) return std::nullopt;
  return group;
}
inline bool is_local_part(std::string_view part) { return group_of_part(part).has_value(); }

// The same part, as a run has it whose replicas all agree.
inline std::string part_of_all(std::string_view part) {
  return std::string(is_local_part(part) ? part.substr(0, part.rfind(kOfGroup)) : part);
}

}  // namespace lockstep
