#include "kernels/split_cross_entropy.h"

#include "kernels/loss_gradients.h"
#include "kernels/operands.h"

namespace lockstep {

namespace {
void check_columns(const char* op, const ConstTensor& logits, std::int64_t first, std::int64_t valid) {
  LOCKSTEP_CHECK(logits.dims() == 2, "{}: logits are {}", op, logits.shape());
  LOCKSTEP_CHECK(first >= 0 && valid >= 0 && valid <= logits.dim(1), "{}: {} valid columns from {} on, in logits of {}",
                 op, valid, first, logits.shape());
}
}  // namespace

void split_cross_entropy_statistics(const SplitCrossEntropyStatisticsArgs& a, Stream& stream) {
  const char* op = "split_cross_entropy_statistics";
  check_columns(op, a.logits, a.first, a.valid);
  const DType type = a.logits.dtype();
  const std::int64_t n = a.logits.dim(0);
  Operands(op, stream)
      .floats("logits", a.logits)
      .have("logits", a.logits, a.logits.shape(), type)
      .have_flat("targets", a.targets, {n}, DType::i32)
      .have_flat("statistics", a.statistics, {n, kLossStatistics}, accumulator_of(type));
  dispatch(cpu::split_cross_entropy_statistics, cuda::split_cross_entropy_statistics,
           meta::split_cross_entropy_statistics, a, stream);
}

void split_cross_entropy(const SplitCrossEntropyArgs& a, Stream& stream) {
  const char* op = "split_cross_entropy";
  check_columns(op, a.logits, a.first, a.valid);
  LOCKSTEP_CHECK(a.statistics.dims() == 3, "{}: statistics are {}", op, a.statistics.shape());
  const DType type = a.logits.dtype();
  const std::int64_t n = a.logits.dim(0);
  Operands(op, stream)
      .floats("logits", a.logits)
      .have("logits", a.logits, a.logits.shape(), type)
      .have_flat("targets", a.targets, {n}, DType::i32)
      .have_flat("losses", a.losses, {n}, accumulator_of(type))
      .have_flat("scale", a.scale, {1}, accumulator_of(type))
      .have_flat("statistics", a.statistics, {a.statistics.dim(0), n, kLossStatistics}, accumulator_of(type));
  check_loss_gradients(op, a.dlogits, a.logits, stream);
  check_likeliest(op, a.likeliest, n, stream);
  dispatch(cpu::split_cross_entropy, cuda::split_cross_entropy, meta::split_cross_entropy, a, stream);
}

}  // namespace lockstep
