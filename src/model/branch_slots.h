// The slots of one branch of a block, attention or feed-forward, that are its unit's to declare: what it shares with
// what comes before and after it, and what it needs where it stands by itself before it joins the residual (with
// dropout, which comes in between, or where ranks cut layers between them and sum what its last product gives).
#pragma once
#include "model/build.h"
#include "model/dropout.h"
#include "model/fp8_products.h"

namespace lockstep {

struct BranchSlots {
  Between between;      // y = x + branch(x)
  Slot alone = -1;      // the branch by itself
  Slot d_dropped = -1;  // only with dropout: the gradient of what it was before

  // The gradient of the branch: that of the residual it joined, or what the branch's dropout left of it.
  Tensor gradient(const DropoutSite& dropout, const Call& call) const {
    return call.at[dropout.active(call) ? d_dropped : between.dy];
  }
};

// The output of a branch's norm, which a projection of N outputs here reads: kept for the weight phase, or alive in
// the forward alone; and the one that the backward reads, the same where it is kept. `trained`: the weight phase reads
// it. None where it is in FP8 alone.
inline Slot normed_slot(const Build& b, int unit, const std::string& name, std::int64_t outputs, bool trained) {
  if (Fp8Products::read_norms(b, b.spec.width, outputs)) return -1;
  const bool kept_turned =  // which rows that are gathered are not
      !b.how.split.sequence && Fp8Products::keep_inputs(b, unit, b.spec.width, outputs);
  const bool keeps = b.recompute(unit).keeps_norm_outputs() && trained && !kept_turned;
  return b.own_rows(unit, name, b.spec.width, Phase::forward, keeps ? Phase::weight : Phase::forward);
}
inline Slot normed_again_slot(const Build& b, int unit, const std::string& name, Slot first, bool trained) {
  const NormOutputs outputs = b.recompute(unit).norm_outputs;
  if (first < 0 || outputs == NormOutputs::kept || (outputs == NormOutputs::by_norm_backward && !trained)) return first;
  return b.own_rows(unit, name, b.spec.width, Phase::input, b.read_last(trained));
}

// The largest magnitude of a gradient that the norm of `from` writes and the last product of `to`'s branch reads, if
// that is of FP8 and reads it as it is.
inline Slot gradient_amax_slot(const Build& b, const std::string& name, int from, int to, bool in_fp8) {
  if (!in_fp8 || b.spec.dropout > 0) return -1;
  return b.slots.add({.name = name + ", largest",
                      .dtype = DType::f32,
                      .shape = {1},
                      .born = {from, Phase::input},
                      .last = {to, Phase::weight},
                      .handed_on = false});
}

// The last phase that reads what a norm was given and the gradient of what it gave; of the second norm of a block,
// whose input phase is in the first half, and the half of it.
inline Phase read_by_norms(const Build& b) { return b.how.weights_later || b.frozen() ? Phase::input : Phase::weight; }
inline Half read_in_half(const Build& b) { return b.how.weights_later || b.frozen() ? Half::first : Half::second; }

}  // namespace lockstep
