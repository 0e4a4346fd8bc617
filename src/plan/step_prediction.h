// How long a step of a run takes on a machine of a machine file, and what its time consists of.
//
// The run's own step on meta with the machine's prices: where every rank has a device, stage by stage on the device
// clock (plan/device_clock.h), for any number of ranks; where ranks are threads that share cores, all ranks on the
// clock of threads (plan/step_forecast.h), which is for as many as a few machines have cores.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "plan/device_clock.h"
#include "plan/plan.h"
#include "spec/machine/machine_spec.h"
#include "spec/run/run_spec.h"

namespace lockstep {

class RunData;

struct StepPrediction {
  double step_seconds = 0;
  double computed = 0;  // of it, mean over stages
  ByAxis exposed{};     // of it in waits for messages, by axis, mean over stages; of pp, the bubble included
  double offload = 0;   // seconds that offloaded bytes move; what of it is not beside the rest is in step_seconds
  std::optional<double> bubble = {};  // of a pipeline
  double mfu = 0;                     // of the peak of the machine's file
  double tokens_per_second = 0;
  std::optional<double> served = {};         // of it, that parameter servers compute, mean over them
  std::optional<LocalStepTimes> local = {};  // of replicas that take local steps; all other times are then their mean
  double exposed_seconds() const { return exposed[0] + exposed[1] + exposed[2] + exposed[3]; }
};

// UserError (usage) where the machine has fewer devices than the layout ranks, or says nothing of the run's type.
StepPrediction predict_step(const RunSpec& spec, const MachineSpec& machine, const RunData& data,
                            const std::vector<Plan>& stages);
// {machine, step_seconds, tokens_per_second, mfu, bubble, exposed_seconds{dp, pp, cp, tp}, compute_seconds,
// offload_seconds}, of parameter servers {server_seconds}, of local steps {local_steps{every, local_seconds,
// synchronizing_seconds}}
nlohmann::ordered_json to_json(const StepPrediction& prediction, const MachineSpec& machine);
// A stage's time on the clock, put together.
StepPrediction prediction_of(const std::vector<std::vector<StageTimes>>& times, const WorldScript& script);
// Whether the machine has room for the run: ranks, and bytes of the fullest. Nothing: it has; else what is missing.
// `remedy`: where none can be typed.
void require_machine(const RunSpec& spec, const MachineSpec& machine, const std::string& remedy = {});
// Seconds per step that offloaded bytes take over the machine's links: beside the step's work, and after it.
struct OffloadSeconds {
  double beside = 0, after = 0;
};
OffloadSeconds offload_seconds(const RunSpec& spec, const MachineSpec& machine, const std::vector<Plan>& stages);

}  // namespace lockstep
