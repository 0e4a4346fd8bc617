#include "spec/layout/stage_rule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "spec/model/model_spec.h"

namespace lockstep {

std::optional<std::vector<std::int64_t>> parse_joined(std::string_view text) {
  std::vector<std::int64_t> counts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t plus = std::min(text.find('+', at), text.size());
    std::int64_t count = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + plus, count);
    if (error != std::errc{} || end != text.data() + plus || count < 0 || count > kMaxLayers) return std::nullopt;
    counts.push_back(count);
    at = plus + 1;
  }
  return counts;
}

std::optional<StageRule> StageRule::parse(std::string_view text) {
  for (const StageRule& rule : {StageRule{}, even()})
    if (text == rule.text()) return rule;
  std::optional<std::vector<std::int64_t>> layers = parse_joined(text);
  return layers ? std::optional(of_layers(std::move(*layers))) : std::nullopt;
}

std::string StageRule::text() const {
  switch (form) {
    case Form::cost:
      return "cost";
    case Form::even:
      return "even";
    case Form::layers:
      break;
  }
  return fmt::format("{}", fmt::join(layers, "+"));
}

}  // namespace lockstep
