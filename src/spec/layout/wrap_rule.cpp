#include "spec/layout/wrap_rule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "spec/layout/stage_rule.h"

namespace lockstep {

namespace {

constexpr std::string_view kHalves = "halves";
constexpr std::string_view kMebibytes = "MiB";
constexpr std::int64_t kMostWrapMebibytes = 1 << 20;

std::optional<std::int64_t> size_in(std::string_view text) {
  if (!text.ends_with(kMebibytes)) return std::nullopt;
  text.remove_suffix(kMebibytes.size());
  std::int64_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error != std::errc{} || end != text.data() + text.size() || size < 1 || size > kMostWrapMebibytes)
    return std::nullopt;
  return size;
}

}  // namespace

std::optional<WrapRule> WrapRule::parse(std::string_view text) {
  if (text == WrapRule{}.text()) return WrapRule{};
  if (text == kHalves) return of_halves();
  if (const auto size = size_in(text)) return of_size(*size);
  std::optional<std::vector<std::int64_t>> blocks = parse_joined(text);
  if (!blocks || std::ranges::count(*blocks, 0) > 0) return std::nullopt;
  return of_blocks(std::move(*blocks));
}

std::string WrapRule::text() const {
  switch (form) {
    case Form::block:
      return "block";
    case Form::halves:
      return std::string(kHalves);
    case Form::size:
      return fmt::format("{}{}", mebibytes, kMebibytes);
    case Form::blocks:
      break;
  }
  return fmt::format("{}", fmt::join(blocks, "+"));
}

std::vector<int> bundles_of(const WrapRule& rule, const Stages& stages, std::span<const std::int64_t> unit_bytes) {
  const int units = static_cast<int>(unit_bytes.size());
  std::vector<int> first(unit_bytes.size());
  std::int64_t bytes = 0;           // of the bundle so far
  std::size_t part = 0;             // by hand: which bundle it is
  std::int64_t blocks_of_part = 0;  // and how many blocks it has so far
  for (int u = 0; u < units; ++u) {
    const bool block = u > 0 && u + 1 < units;
    bool begins = !block || u == 1 || stages.chunk_of(u) != stages.chunk_of(u - 1);
    switch (rule.form) {
      case WrapRule::Form::block:
      case WrapRule::Form::halves:
        begins = true;
        break;
      case WrapRule::Form::size:
        begins |= bytes >= rule.mebibytes << 20;
        break;
      case WrapRule::Form::blocks:
        if (block && blocks_of_part == rule.blocks.at(part)) ++part, blocks_of_part = 0, begins = true;
        blocks_of_part += block;
        break;
    }
    first[static_cast<std::size_t>(u)] = begins ? u : first[static_cast<std::size_t>(u - 1)];
    bytes = (begins ? 0 : bytes) + unit_bytes[static_cast<std::size_t>(u)];
  }
  return first;
}

}  // namespace lockstep
