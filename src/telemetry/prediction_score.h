// What was predicted of a run's step, beside what was measured: step time, waits by axis of the mesh, and the bubble.
//
// `train` with run.machine writes the prediction into RUN/plan.json before the first step. A measured value is the
// median over all steps but the first, which warms up, of the mean over ranks; one that no step has is nothing. Of
// replicas that agree after every k steps, it is the median over the means of k steps each, of which one synchronizes.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "telemetry/time_account.h"

namespace lockstep {

inline constexpr std::size_t kWaitAxes = 4;
inline constexpr std::array<std::string_view, kWaitAxes> kWaitAxisNames = {"dp", "pp", "cp", "tp"};  // as TimeUse
using SecondsByAxis = std::array<double, kWaitAxes>;

struct PredictedStep {
  std::string machine = {};  // its name
  double step_seconds = 0;
  SecondsByAxis exposed{};
  std::optional<double> bubble = {}, mfu = {};
  std::int64_t every = 1;  // of local steps: between two synchronizations; the times above are means over as many
};

// One step, mean over ranks.
struct MeasuredStep {
  double seconds = 0;
  std::optional<SecondsByAxis> waited = {};
  std::optional<double> bubble = {};  // share of the step
};

struct ScoredValue {
  double predicted = 0;
  std::optional<double> measured = {};
  // 0.1: predicted a tenth too long. Nothing where nothing was measured.
  std::optional<double> error() const;
};

struct PredictionScore {
  std::string machine;
  ScoredValue step, exposed;                                    // seconds; exposed: the waits of all axes
  std::array<std::optional<ScoredValue>, kWaitAxes> by_axis{};  // without axes that have none of either
  std::optional<ScoredValue> bubble = {};                       // of a pipeline
  std::optional<double> mfu = {};                               // predicted, of the peak in the machine's file
};

PredictionScore score_prediction(const PredictedStep& predicted, const std::vector<MeasuredStep>& steps);

// What, and "12.3 ms predicted, 11.9 ms measured, error +3.4 %": step, exposed by axis and in all, bubble.
std::vector<std::pair<std::string, std::string>> score_lines(const PredictionScore& score);

}  // namespace lockstep
