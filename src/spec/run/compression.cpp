#include "spec/run/compression.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

namespace lockstep {

namespace {

using Kind = Compression::Kind;
constexpr std::array<std::pair<std::string_view, Kind>, 4> kNames{
    {{"none", Kind::none}, {"bf16", Kind::bf16}, {"int8", Kind::int8}, {"onebit", Kind::onebit}}};
constexpr std::string_view kTopk = "topk:";

}  // namespace

std::optional<Compression> Compression::parse(std::string_view text) {
  for (const auto& [name, kind] : kNames)
    if (text == name) return Compression{.kind = kind};
  if (!text.starts_with(kTopk)) return std::nullopt;
  text.remove_prefix(kTopk.size());
  double share = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), share);
  if (error != std::errc() || end != text.data() + text.size() || !(share > 0 && share < 1)) return std::nullopt;
  return Compression{.kind = Kind::topk, .share = share};
}

std::string Compression::text() const {
  for (const auto& [name, one] : kNames)
    if (kind == one) return std::string(name);
  return fmt::format("{}{}", kTopk, share);
}

}  // namespace lockstep
