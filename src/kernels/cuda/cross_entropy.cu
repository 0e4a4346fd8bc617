#include "kernels/cross_entropy.h"

#include <limits>

#include "kernels/cuda/rows.cuh"

namespace lockstep::cuda {

namespace {

template <class S, class D>
struct Loss {
  Rows<D> dlogits;  // may be none
  Rows<const S> logits;
  const std::int32_t* targets;
  const Compute<S>* scale;
  Compute<S>* losses;
  std::int64_t count, vocabulary;
};

// A block for each row: its maximum, its sum, its gradient. dlogits may lie over logits: all of the row's sum is done
// before a thread writes, and the target's logit is read before.
//
// A target outside the vocabulary cannot throw here. Its row becomes NaN, loss and gradient, so that no update is made
// of it.
template <class S, class D>
__global__ void loss(Loss<S, D> a) {
  using T = Compute<S>;
  const T scale = *a.scale;
  for (std::int64_t row = blockIdx.x; row < a.count; row += gridDim.x) {
    const std::int32_t target = a.targets[row];
    const S* in = a.logits[row];
    D* out = a.dlogits ? a.dlogits[row] : nullptr;
    if (target < 0 || target >= a.vocabulary) {
      const T value = target == kIgnoredTarget ? T(0) : std::numeric_limits<T>::quiet_NaN();
      if (threadIdx.x == 0) a.losses[row] = value;
      for (std::int64_t i = threadIdx.x; out && i < a.vocabulary; i += blockDim.x) out[i] = narrow<D>(value);
      continue;  // the whole block does
    }
    const T hit = widen(in[target]);
    // A NaN may pass the maximum unseen; the sum meets it again.
    T high = -std::numeric_limits<T>::infinity();
    for (std::int64_t i = threadIdx.x; i < a.vocabulary; i += blockDim.x) {
      const T v = widen(in[i]);
      high = v > high ? v : high;
    }
    const T top = block_max(high);
    T sum = 0;
    for (std::int64_t i = threadIdx.x; i < a.vocabulary; i += blockDim.x) sum += std::exp(widen(in[i]) - top);
    const T total = block_sum(sum);
    if (threadIdx.x == 0) a.losses[row] = std::log(total) + (top - hit);
    if (!out) continue;
    const T factor = scale / total;
    // Of the target, (p - 1)·scale rounds once in a narrow type.
    const T of_target = (std::exp(hit - top) / total - T(1)) * scale;
    for (std::int64_t i = threadIdx.x; i < a.vocabulary; i += blockDim.x)
      out[i] = narrow<D>(i == target ? of_target : std::exp(widen(in[i]) - top) * factor);
  }
}

template <class S, class D>
void launch(const CrossEntropyArgs& a, cudaStream_t stream) {
  using T = Compute<S>;
  const Loss<S, D> args{.dlogits = rows<D>(a.dlogits),
                        .logits = rows<S>(a.logits),
                        .targets = a.targets.data<std::int32_t>(),
                        .scale = a.scale.data<T>(),
                        .losses = a.losses.data<T>(),
                        .count = a.logits.dim(0),
                        .vocabulary = a.logits.dim(1)};
  loss<S, D><<<row_blocks(args.count), threads_for(args.vocabulary), 0, stream>>>(args);
  check_launch("cross_entropy");
}

}  // namespace

void cross_entropy(const CrossEntropyArgs& a, lockstep::Stream& stream) {
  const cudaStream_t queue = native(stream);
  with_float(a.logits.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    const DType d = a.dlogits ? a.dlogits.dtype() : a.logits.dtype();
    if (d == a.logits.dtype()) return launch<S, S>(a, queue);
    if constexpr (std::is_same_v<S, float>) {
      if (d == DType::bf16) return launch<float, bf16>(a, queue);
      if (d == DType::f16) return launch<float, f16>(a, queue);
    }
    LOCKSTEP_CHECK(false, "cross_entropy: gradient {} of logits {}", name_of(d), name_of(a.logits.dtype()));
  });
}

}  // namespace lockstep::cuda
