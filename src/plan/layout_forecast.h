// How long a step under a layout will take, how long its ranks will wait, and its pipeline's bubble.
//
// The ranks run as on meta (plan/step_script.h), with times from a calibration (plan/calibration.h), on the simulator's
// clock (plan/step_forecast.h).
#pragma once
#include <optional>

#include "plan/calibration.h"
#include "plan/local_step_times.h"
#include "plan/step_forecast.h"
#include "plan/step_spans.h"
#include "spec/machine/link_spec.h"

namespace lockstep {

struct LayoutForecast {
  double step_seconds = 0;            // from the end of a step to the end of the next, mean over ranks
  double exposed_seconds = 0;         // of it in waits, mean over ranks
  std::array<double, 4> exposed{};    // of them, by axis of the mesh
  std::optional<double> bubble = {};  // of a pipeline
  Calibration from = {};
  std::optional<LocalStepTimes> local = {};  // where replicas take local steps; all of the above is then their mean
};

// What a forecast is based on beside what is measured.
struct ForecastMachine {
  int cores = 1;
  int threads = 1;                    // of a rank
  std::optional<LinkSpec> link = {};  // a simulated one that each rank has
};
ForecastWorld forecast_world(const StepScript& script, const Calibration& calibration, const ForecastMachine& machine);
LayoutForecast forecast_layout(const StepScript& script, const Calibration& calibration,
                               const ForecastMachine& machine);
// The same of a script whose work has prices (plan/kernel_prices.h). `beside`: seconds of a step beside all its
// actions.
LayoutForecast forecast_priced(const StepScript& script, const LayoutSpec& layout, const MessageRates& messages,
                               const ForecastMachine& machine, double beside);

// Of a run whose ranks are threads, with the scripts that its kind of steps needs.
LayoutForecast forecast_run(const RunSpec& spec, const RunData& data, const Calibration& calibration,
                            const ForecastMachine& machine);

// The bubble of a step, as plan/measured_timeline.h has it: by rank its list and when it ran each action, measured or
// forecast. Nothing where there is no pipeline.
struct WatchedRank {
  const RankStep& step;
  const StepSpans::Step& spans;
};
std::optional<double> pipeline_bubble(const std::vector<WatchedRank>& ranks);

}  // namespace lockstep
