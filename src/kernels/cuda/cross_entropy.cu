// Rows that fit the registers of a cluster are held there (cross_entropy_held.cuh); longer ones, fp64's and those of
// GPUs without clusters are walked (cross_entropy_walked.cuh). Which is a function of V and the type on any one GPU.
#include "kernels/cross_entropy.h"

#include "kernels/cuda/cross_entropy_held.cuh"
#include "kernels/cuda/cross_entropy_walked.cuh"

namespace lockstep::cuda {

namespace {

// Units are packs of logits where the vocabulary is made of them; else single logits, side by side over the lanes.
template <class S, class D>
bool launch_held(const LossRows<S, D>& rows, cudaStream_t stream) {
  constexpr int kUnit = kPack<S>;
  if (rows.vocabulary % kUnit != 0) return launch_held<S, D, 1, false>(rows, stream);
  if (aligned_rows<16>(rows.logits) && aligned_rows<kUnit * sizeof(D)>(rows.dlogits))
    return launch_held<S, D, kUnit, true>(rows, stream);
  return launch_held<S, D, kUnit, false>(rows, stream);
}

template <class S, class D>
void launch(const CrossEntropyArgs& a, cudaStream_t stream) {
  using T = Compute<S>;
  const LossRows<S, D> all{.dlogits = rows<D>(a.dlogits),
                           .logits = rows<S>(a.logits),
                           .targets = a.targets.data<std::int32_t>(),
                           .scale = a.scale.data<T>(),
                           .losses = a.losses.data<T>(),
                           .likeliest = a.likeliest ? a.likeliest.data<std::int32_t>() : nullptr,
                           .count = a.logits.dim(0),
                           .vocabulary = static_cast<int>(a.logits.dim(1))};
  if constexpr (!std::is_same_v<S, double>)
    if (launch_held(all, stream)) return;
  launch_walked(all, stream);
}

}  // namespace

void cross_entropy(const CrossEntropyArgs& a, lockstep::Stream& stream) {
  const cudaStream_t queue = native(stream);
  LOCKSTEP_CHECK(a.logits.dim(1) < 1 << 30, "cross_entropy: more columns than int32 can count");
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
