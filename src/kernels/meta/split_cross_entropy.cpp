#include "kernels/split_cross_entropy.h"

#include "kernels/meta/count.h"

namespace lockstep::meta {

// Padding counts as columns do: there is at most a tile of it.
void split_cross_entropy_statistics(const SplitCrossEntropyStatisticsArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::cross_entropy, 4 * a.logits.elements(), {a.logits, a.targets}, {a.statistics});
}

void split_cross_entropy(const SplitCrossEntropyArgs& a, lockstep::Stream& stream) {
  const ConstTensor read = a.dlogits ? a.logits : ConstTensor{};
  count(stream, KernelKind::cross_entropy, (a.dlogits ? 3 * a.logits.elements() : 0) + a.statistics.elements(),
        {read, a.targets, a.statistics, a.scale}, {a.losses, a.dlogits, a.likeliest});
}

}  // namespace lockstep::meta
