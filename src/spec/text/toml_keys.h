// Lists of keys: those that a table knows, and those of the design for which this version has one value, or none.
#pragma once
#include <fmt/format.h>

#include <span>
#include <string_view>
#include <vector>

#include "spec/text/toml_fields.h"

namespace lockstep {

using Keys = std::vector<std::string_view>;

inline Keys operator+(Keys left, const Keys& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

// The keys that a list visits.
struct Collect {
  Keys keys;
  void operator()(std::string_view key, const auto&...) { keys.push_back(key); }
  void pair(std::string_view key, const auto&...) { keys.push_back(key); }
};

// A key of docs/design.md that is not here yet.
struct Later {
  std::string_view key;
  std::string_view only;  // the value that is taken, as a message shows it; empty: none is
};

inline Keys keys_of(std::span<const Later> later) {
  Keys keys;
  for (const Later& one : later) keys.push_back(one.key);
  return keys;
}

inline void refuse_later(const TomlTable& table, std::span<const Later> later) {
  for (const Later& one : later) {
    if (!table.has(one.key) || table.shown(one.key) == one.only) continue;
    table.refuse(
        one.key, fmt::format("{} = {} is not in this version", one.key, table.shown(one.key)),
        one.only.empty() ? fmt::format("leave {} out", one.key) : fmt::format("leave it out or use {}", one.only));
  }
}

}  // namespace lockstep
