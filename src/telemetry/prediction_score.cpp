#include "telemetry/prediction_score.h"

#include <fmt/format.h>

#include "base/median.h"
#include "telemetry/number_text.h"

namespace lockstep {

namespace {

template <class Value>
std::optional<double> median_but_first(const std::vector<MeasuredStep>& steps, std::int64_t every, const Value& value) {
  std::vector<double> values;
  double sum = 0;
  std::int64_t summed = 0;  // of as many steps as one mean is of
  for (std::size_t i = steps.size() > 1 ? 1 : 0; i < steps.size(); ++i) {
    const std::optional<double> one = value(steps[i]);
    if (!one) continue;
    sum += *one;
    if (++summed < every) continue;
    values.push_back(sum / static_cast<double>(every));
    sum = 0;
    summed = 0;
  }
  if (values.empty()) return std::nullopt;
  return median(std::move(values));
}

double sum_of_axes(const SecondsByAxis& seconds) {
  double sum = 0;
  for (const double one : seconds) sum += one;
  return sum;
}

template <class Text>
std::string scored_text(const ScoredValue& value, const Text& text) {
  if (!value.measured) return fmt::format("{} predicted, not measured", text(value.predicted));
  const std::optional<double> error = value.error();
  return fmt::format("{} predicted, {} measured, error {}", text(value.predicted), text(*value.measured),
                     error ? fmt::format("{:+.1f}%", 100 * *error) : "unknown: nothing was measured");
}

}  // namespace

std::optional<double> ScoredValue::error() const {
  if (!measured || !(*measured > 0)) return std::nullopt;
  return predicted / *measured - 1;
}

PredictionScore score_prediction(const PredictedStep& predicted, const std::vector<MeasuredStep>& steps) {
  PredictionScore score{.machine = predicted.machine,
                        .step = {.predicted = predicted.step_seconds},
                        .exposed = {.predicted = sum_of_axes(predicted.exposed)},
                        .mfu = predicted.mfu};
  const std::int64_t every = predicted.every;
  score.step.measured = median_but_first(steps, every, [](const MeasuredStep& s) { return std::optional(s.seconds); });
  const auto waited = [&](const auto& of) {
    return median_but_first(steps, every, [&](const MeasuredStep& s) {
      return s.waited ? std::optional<double>(of(*s.waited)) : std::nullopt;
    });
  };
  score.exposed.measured = waited(sum_of_axes);
  for (std::size_t a = 0; a < kWaitAxes; ++a) {
    const ScoredValue one{.predicted = predicted.exposed[a],
                          .measured = waited([&](const SecondsByAxis& by_axis) { return by_axis[a]; })};
    if (one.predicted > 0 || one.measured.value_or(0) > 0) score.by_axis[a] = one;
  }
  if (predicted.bubble)
    score.bubble = {.predicted = *predicted.bubble,
                    .measured = median_but_first(steps, every, [](const MeasuredStep& s) { return s.bubble; })};
  return score;
}

std::vector<std::pair<std::string, std::string>> score_lines(const PredictionScore& score) {
  std::vector<std::pair<std::string, std::string>> lines{{"step", scored_text(score.step, seconds_text)}};
  int axes = 0;
  for (std::size_t a = 0; a < kWaitAxes; ++a)
    if (score.by_axis[a]) {
      lines.emplace_back(fmt::format("exposed, {}", kWaitAxisNames[a]), scored_text(*score.by_axis[a], seconds_text));
      ++axes;
    }
  if (axes != 1) lines.emplace_back("exposed, all", scored_text(score.exposed, seconds_text));
  if (score.bubble)
    lines.emplace_back("bubble",
                       scored_text(*score.bubble, [](double share) { return fmt::format("{:.1f}%", 100 * share); }));
  return lines;
}

}  // namespace lockstep
