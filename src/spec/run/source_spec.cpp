#include "spec/run/source_spec.h"

#include <fmt/format.h>

#include <charconv>

namespace lockstep {

namespace {

constexpr std::size_t kMostWeightSteps = 100;
constexpr double kMostWeight = 1e9;
constexpr std::int64_t kLatestChange = std::int64_t{1} << 60;

std::string_view without_spaces(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number value{};
  text = without_spaces(text);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

double WeightSteps::at(std::int64_t sample) const {
  double weight = steps.front().weight;
  for (const Step& step : steps)
    if (step.from <= sample) weight = step.weight;
  return weight;
}

std::optional<WeightSteps> WeightSteps::parse(std::string_view text) {
  WeightSteps read;
  read.steps.clear();
  for (bool more = true; more;) {
    const std::size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
    const std::size_t at = part.find('@');
    const bool first = read.steps.empty();
    if (first != (at == std::string_view::npos) || read.steps.size() == kMostWeightSteps) return std::nullopt;
    const auto weight = number_of<double>(part.substr(0, at));
    const auto from = first ? std::optional<std::int64_t>(0) : number_of<std::int64_t>(part.substr(at + 1));
    if (!weight || !from || !(*weight >= 0 && *weight <= kMostWeight)) return std::nullopt;
    if (!first && (*from <= read.steps.back().from || *from > kLatestChange)) return std::nullopt;
    read.steps.push_back({.from = *from, .weight = *weight});
  }
  return read;
}

std::string WeightSteps::text() const {
  std::string out;
  for (const Step& step : steps)
    out += step.from == 0 ? fmt::format("{}", step.weight) : fmt::format(", {}@{}", step.weight, step.from);
  return out;
}

}  // namespace lockstep
