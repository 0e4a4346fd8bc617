// The fastest layouts of a run on a machine: all of dp, pp, cp, tp, ZeRO, schedule, chunks, micro-batches,
// recomputation, offload and sequence parallel, ranked.
//
// Every combination is composed from prices of units first (plan/composed_step.h). The best of them are planned on meta
// and timed on the clock in full, in the order of their composed times, and those numbers are what is told. Where there
// are few combinations all of them are timed in full. Of those that gather weights (ZeRO 3), wrap and prefetch are
// tried last.
#pragma once
#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/composed_step.h"
#include "plan/step_prediction.h"

namespace lockstep {

// A layout, planned and timed in full.
struct TimedLayout {
  LayoutChoice choice;
  StepPrediction predicted;
  std::int64_t peak = 0;  // bytes of the fullest rank, the driver's included
  std::int64_t host = 0;  // bytes on the host
  bool fits = false;
  std::string limit;  // what takes most of its time beside computing, in words
};

struct LayoutSearch {
  std::vector<TimedLayout> best;        // that fit, the fastest first
  std::optional<TimedLayout> plain_dp;  // dp alone, with the least of ZeRO and recomputation that fits; none fits: none
  std::int64_t combinations = 0;        // that were composed
  std::int64_t too_large = 0, impossible = 0;  // of them, that were left out
  std::int64_t shapes = 0;                     // of units, that ran on meta
  int timed = 0;                               // in full
};

struct SearchOptions {
  int wanted = 10;
  int most_timed = 48;                  // in full
  std::vector<LayoutChoice> also = {};  // that are timed in full whatever they are composed to
};

// Plans and times choices in full, each once. Choices that no run can have are nothing.
class LayoutTimer {
 public:
  // All outlive it.
  LayoutTimer(const RunSpec& run, const MachineSpec& machine, const RunData& data);
  std::optional<TimedLayout> time(const LayoutChoice& choice);
  std::vector<std::optional<TimedLayout>> time_all(const std::vector<LayoutChoice>& choices);  // on all cores
  const RunSpec& run() const { return run_; }
  const MachineSpec& machine() const { return machine_; }
  const RunData& data() const { return data_; }
  int timed() const { return timed_; }

 private:
  const RunSpec& run_;
  const MachineSpec& machine_;
  const RunData& data_;
  std::atomic<int> timed_ = 0;
};

// Every combination that could be a run on all of the machine's devices.
std::vector<LayoutChoice> layout_choices(const RunSpec& run, const MachineSpec& machine);

// All of them, composed.
struct ComposedSpace {
  std::vector<LayoutChoice> choices;
  std::vector<std::optional<ComposedStep>> steps;  // by choice; nothing: there is no such run
  std::int64_t shapes = 0;                         // of units, that ran on meta
};
ComposedSpace compose_all(const RunSpec& run, const MachineSpec& machine, UnitPrices& prices);

// Those that are composed to need least memory, a few, the least first.
std::vector<std::size_t> smallest_of(const ComposedSpace& space);

LayoutSearch search_layouts(LayoutTimer& timer, const ComposedSpace& space, const SearchOptions& options);

}  // namespace lockstep
