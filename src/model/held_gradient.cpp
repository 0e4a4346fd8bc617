#include "model/held_gradient.h"

#include "kernels/elementwise.h"

namespace lockstep {

HeldGradient::HeldGradient(const Build& b, int unit, const std::string& name, std::int64_t elements) {
  const DType sums = accumulator_of(b.dtype);
  const Moment input{unit, Phase::input}, weight{unit, Phase::weight};
  sum_ = b.slots.add({name + " of a micro-batch", sums, {elements}, input, weight});
  if (b.dtype != sums) wide_ = b.slots.add({name + " in full", sums, {elements}, weight, weight});
}

void HeldGradient::add_to(const Tensor& gradient, const Call& call) const {
  const Tensor sum = call.at[sum_];
  if (!call.accumulate) return cast({.y = gradient, .x = sum}, call.stream);
  if (gradient.dtype() == sum.dtype()) return add({.y = gradient, .a = gradient, .b = sum}, call.stream);
  const Tensor wide = call.at[wide_];
  cast({.y = wide, .x = gradient}, call.stream);
  add({.y = wide, .a = wide, .b = sum}, call.stream);
  cast({.y = gradient, .x = wide}, call.stream);
}

}  // namespace lockstep
