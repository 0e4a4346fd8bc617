// A micro-batch's part of the gradient of a norm's weight, from the input phase, which sums it, to the weight phase,
// which adds it.
//
// The sum over a micro-batch's rows needs what the norm was given and the gradient of what it gave: two tensors of all
// tokens. Where the weight phase comes much later (Execution::weights_later) they would wait for it; this is one vector
// in their place. The same bits: a sum over rows is whole, in the accumulator type, before it is added to what the
// gradient holds, here as in the kernel that does both.
#pragma once
#include "model/build.h"

namespace lockstep {

class HeldGradient {
 public:
  HeldGradient() = default;
  HeldGradient(const Build& build, int unit, const std::string& name, std::int64_t elements);

  bool is_held() const { return sum_ >= 0; }
  Tensor sum(const Call& call) const { return call.at[sum_]; }  // the input phase is its first writer
  void add_to(const Tensor& gradient, const Call& call) const;

 private:
  Slot sum_ = -1;
  Slot wide_ = -1;  // the gradient in the accumulator type, where it may be of 16 bits
};

}  // namespace lockstep
