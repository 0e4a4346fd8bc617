// A machine file brought nearer to what runs on that machine took.
//
// Two terms are scaled, each by one factor, since a run's times say no more than that:
//
//   compute    products.best, attention's shares and the shares of all other kernels, by the ratio of measured to
//              predicted time without waits
//   messages   of threads sum_rate and copy_rate, of devices the efficiency of the links that the layouts use, by the
//              ratio of measured to predicted waits along dp, cp and tp; of runs that wait there for a hundredth of
//              their step or more, both predicted and measured. Waits along pp are the bubble's, which computing makes.
//
// The ratios of several runs count by their geometric mean. A factor is damped, since waits are not proportional to
// rates, and taken again with the scaled machine; it stays within kMostRefined in all, shares within what a machine
// file may state, and a change that makes the runs' mean error larger is not made. Deterministic.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/step_prediction.h"

namespace lockstep {

inline constexpr double kMostRefined = 4;  // times as fast or as slow

// A run on the machine: what it took, and what a machine file says of it.
struct RefiningRun {
  std::string name;
  double step_seconds = 0;             // measured
  std::optional<ByAxis> exposed = {};  // measured; nothing: not recorded
  std::int64_t ranks = 1;
  std::function<StepPrediction(const MachineSpec&)> predict = {};
};

struct RefinedRun {
  std::string name;
  double measured = 0, before = 0, after = 0;  // seconds of a step
  double error_before() const { return before / measured - 1; }
  double error_after() const { return after / measured - 1; }
};

struct MachineRefinement {
  MachineSpec machine;
  double compute = 1;                // its time, over what the given file says
  std::optional<double> messages{};  // likewise; nothing: no run says anything of them
  std::vector<RefinedRun> runs = {};
};

MachineRefinement refine_machine(const MachineSpec& machine, const std::vector<RefiningRun>& runs);

}  // namespace lockstep
