#include "kernels/cross_entropy.h"

#include "kernels/loss_gradients.h"
#include "kernels/operands.h"

namespace lockstep {

void cross_entropy(const CrossEntropyArgs& a, Stream& stream) {
  LOCKSTEP_CHECK(a.logits.dims() == 2, "cross_entropy: logits are {}", a.logits.shape());
  const DType type = a.logits.dtype();
  const std::int64_t n = a.logits.dim(0);
  Operands("cross_entropy", stream)
      .floats("logits", a.logits)
      .have("logits", a.logits, a.logits.shape(), type)
      .have_flat("targets", a.targets, {n}, DType::i32)
      .have_flat("losses", a.losses, {n}, accumulator_of(type))
      .have_flat("scale", a.scale, {1}, accumulator_of(type));
  check_loss_gradients("cross_entropy", a.dlogits, a.logits, stream);
  check_likeliest("cross_entropy", a.likeliest, n, stream);
  dispatch(cpu::cross_entropy, cuda::cross_entropy, meta::cross_entropy, a, stream);
}

}  // namespace lockstep
