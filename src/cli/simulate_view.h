// A simulated run as people and programs read it.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "plan/goodput.h"
#include "plan/save_costs.h"
#include "plan/step_prediction.h"
#include "plan/step_simulation.h"

namespace lockstep {

struct SimulatedRun {
  RunSpec spec;
  MachineSpec machine;
  StepPrediction predicted = {};  // of the step in which all ranks compute alike
  SimulationSpec asked = {};
  StepSimulation steps = {};
  // With all that plan --machine counts beside the clock.
  double plain_seconds() const { return predicted.step_seconds; }
  double step_seconds() const { return predicted.step_seconds + steps.step_seconds - steps.plain_seconds; }

  struct Month {
    GoodputSpec spec = {};
    SaveCosts save = {};
    GoodputForecast forecast = {};
    double closed_form = 0;       // expected goodput with spec.save_every
    std::int64_t best_every = 1;  // steps
    double best_goodput = 0;      // expected
  };
  std::optional<Month> month = {};  // none where nothing fails
};

std::string simulation_text(const SimulatedRun& run);
nlohmann::ordered_json simulation_json(const SimulatedRun& run);

}  // namespace lockstep
