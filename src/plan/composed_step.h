// A step under a layout, put together from the prices of units (plan/unit_prices.h): in microseconds, so that tens of
// thousands of layouts can be ranked. What is found good is then planned and timed in full (plan/layout_search.h).
//
// Operations, parameters and what tp, cp and pp send are exact: the sums that a full plan comes to. Times and bytes are
// estimates: the bubble is the schedule's formula, a stage's activations are what is kept times the micro-batches in
// flight, and messages of dp are hidden beside the last backward and the first forward.
#pragma once
#include "plan/unit_prices.h"

namespace lockstep {

// What a search chooses.
struct LayoutChoice {
  LayoutSpec layout;
  Recompute recompute = Recompute::none;
  bool offload = false;  // the optimizer's state, to the host
  bool operator==(const LayoutChoice&) const = default;
};
// The run under the choice.
RunSpec with_choice(const RunSpec& run, const LayoutChoice& choice);
// "dp=8,pp=4,tp=8,micro=8", and what differs from the run's own of the rest: "memory.recompute=full".
std::string to_text(const LayoutChoice& choice);

// The units of one stage.
struct StageUnits {
  std::int64_t blocks = 0;
  bool embedding = false, head = false;
  std::int64_t sends = 0;  // to other stages per micro-batch: at each end of a chunk whose neighbour is elsewhere
};
// How many of these a stage of the layout has.
std::int64_t sends_of(const LayoutSpec& layout, std::int64_t stage);

struct ComposedTotals {
  std::int64_t matmul_flops = 0;
  std::int64_t elements = 0;              // of parameters
  std::int64_t sent_cp = 0, sent_pp = 0;  // bytes of tensors per step
  bool operator==(const ComposedTotals&) const = default;
};
// Of a rank of a stage in one step.
ComposedTotals totals_of(const PricedUnits& units, const StageUnits& stage, const LayoutSpec& layout);

struct ComposedStep {
  double seconds = 0;
  std::int64_t bytes = 0;  // of the fullest stage
};
ComposedStep compose(const RunSpec& run, const LayoutChoice& choice, UnitPrices& prices);

// How many blocks each chunk has, so that the slowest is as fast as can be: by seconds of a block, of the embedding and
// of the head.
std::vector<std::int64_t> blocks_by_chunk(std::int64_t layers, std::int64_t chunks, double block, double embedding,
                                          double head);

}  // namespace lockstep
