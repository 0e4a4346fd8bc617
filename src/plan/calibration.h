// What forecasts of a step's time are made of: short measurements on this machine, before any layout runs.
//
// Rates are of one rank that computes beside as many others as there are cores for, since a core's caches, memory and
// clock are shared: the program's own product in the run's type, a copy, and messages between as many thread ranks as
// the layout has. A real kernel is slower than these, and by how much is measured too: one rank trains three steps (the
// first is not counted) of two micro-batches as large as the layout's, with as many copies of it side by side, and each
// kind of action is compared with the time that the rates give for its count on meta. What one rank alone does not do
// (messages, smaller matrices, parts of them) a forecast adds, and may be wrong about.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <tuple>

#include "plan/message_rates.h"
#include "plan/step_script.h"
#include "spec/run/run_spec.h"

namespace lockstep {

class RunData;

struct MachineRates {
  double flops = 1;  // of products per second, of one rank
  double bytes = 1;  // read and written per second by a copy, of one rank
};

// The roofline of this work: products, then all else, each as slow as its operations or its bytes make it.
double roofline_seconds(const meta::Work& work, const MachineRates& rates);

// Embedding, blocks and head cost differently; blocks cost alike.
enum class UnitPlace : std::uint8_t { none, first, inner, last };
UnitPlace place_of(const Action& action, const StepShape& shape);

// Seconds of real actions over those of the roofline.
struct ActionRates {
  std::map<std::pair<ActionKind, UnitPlace>, double> slowness = {};
  double mean = 1;        // of all of them, for what one rank alone has nothing of
  double beside = 0;      // seconds per sample beside them: fetching the batch, actions that meta counts nothing of
  bool measured = false;  // false: one rank alone does not fit, and a kernel is taken to be as fast as the rates
  double of(const Action& action, const StepShape& shape) const;
};

struct Calibration {
  MachineRates machine;
  MessageRates messages;
  ActionRates actions;
  double coding = 0;  // seconds of a byte that a kernel of the run's compression reads or writes
};

// Each measurement is made once, for all layouts that it serves.
class Calibrator {
 public:
  // `cores`: that the ranks have; the data outlives it. It measures no more once it is to stop.
  Calibrator(const RunData& data, int cores, std::function<bool()> wants_stop = {});
  // Of a laid out run whose ranks have this many threads each. Nothing: it was to stop.
  std::optional<Calibration> of(const RunSpec& spec, int threads);

 private:
  double coding_of(const RunSpec& spec, int threads, int copies);
  ActionRates measure_actions(const RunSpec& one, int threads, int copies, const MachineRates& machine) const;

  const RunData& data_;
  int cores_;
  std::function<bool()> wants_stop_;
  std::map<std::pair<int, int>, MachineRates> machine_;                              // by threads and copies
  std::map<std::tuple<std::string, int, int>, double> coding_;                       // by form, threads and copies
  std::map<int, MessageRates> messages_;                                             // by ranks
  std::map<std::tuple<int, int, std::int64_t, std::int64_t>, ActionRates> actions_;  // and samples, micro-batches
};

}  // namespace lockstep
