// What the units of a model cost on a machine, found on meta once for each shape that units can have: the search over
// layouts (plan/layout_search.h) puts steps together from it.
//
// A shape is what a phase's kernels and messages depend on: how a layer and a sample are split (tp, sp, cp), the
// samples of a micro-batch, and what is recomputed. A model of two blocks on one stage has a unit of each kind, and
// stands for any number of blocks on any number of stages.
#pragma once
#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <mutex>

#include "plan/device_clock.h"
#include "plan/kernel_prices.h"
#include "spec/run/run_spec.h"

namespace lockstep {

class RunData;

// One phase of a unit for one micro-batch.
struct PricedPhase {
  PhaseTime time;
  std::int64_t matmul_flops = 0;
  std::array<std::int64_t, kMeshAxes.size()> sent{};  // bytes, by axis
};

struct PricedUnit {
  std::array<PricedPhase, 3> first, later;  // forward, input, weight: of the first micro-batch, and of any other
  std::int64_t elements = 0;                // of its parameters that a rank has under tp, padding included
  std::int64_t kept = 0;                    // bytes of activations from a micro-batch's forward to its backward
  double seconds(std::size_t phase) const { return later[phase].time.seconds(); }
};

struct PricedUnits {
  PricedUnit embedding, block, head;
  std::int64_t working = 0;    // bytes of activations beside what is kept, while a phase runs
  std::int64_t handed_on = 0;  // bytes of what one stage sends to the next
  std::int64_t beside = 0;     // bytes of workspace, data, driver and libraries
};

class UnitPrices {
 public:
  // `run`: all but the layout and what is recomputed. All outlive it.
  UnitPrices(const RunSpec& run, const MachineSpec& machine, const RunData& data);

  // Of the units under this layout and recomputation. Safe to be asked by several threads. UserError where there is no
  // such layout.
  const PricedUnits& of(const LayoutSpec& layout, Recompute recompute, std::int64_t samples);
  std::size_t shapes() const { return known_.size(); }
  // A pipeline's time over that in which a stage is busy, where a stage's phases of one micro-batch take these times.
  double stretch(const LayoutSpec& layout, double forward, double input, double weight);
  const MachineSpec& machine() const { return machine_; }

 private:
  struct Key {
    std::int64_t tp, cp, samples, pieces;
    int kind, order, sp, recompute;
    auto operator<=>(const Key&) const = default;
  };
  PricedUnits find(const LayoutSpec& layout, Recompute recompute, std::int64_t samples) const;

  const RunSpec& run_;
  const MachineSpec& machine_;
  const RunData& data_;
  KernelPrices prices_;
  std::mutex mutex_;
  std::map<Key, PricedUnits> known_;
  std::map<std::array<std::int64_t, 6>, double> stretches_;
};

}  // namespace lockstep
