#include "kernels/cross_entropy.h"

#include <algorithm>

#include "kernels/cpu/cross_entropy_rows.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/types.h"

namespace lockstep::cpu {

namespace {

template <class S, class D>
void run(const CrossEntropyArgs& a, Stream& stream) {
  using T = Compute<S>;
  const std::int64_t vocabulary = a.logits.dim(1);
  const auto logits = rows<S>(a.logits);
  const auto dlogits = rows<D>(a.dlogits);
  const std::int32_t* targets = a.targets.data<std::int32_t>();
  T* losses = a.losses.data<T>();
  std::int32_t* likeliest = a.likeliest ? a.likeliest.data<std::int32_t>() : nullptr;
  const T scale = *a.scale.data<T>();
  each_row(stream, a.logits.dim(0), vocabulary, [&](std::int64_t row, int) {
    const S* in = logits[row];
    const std::int32_t target = targets[row];
    if (target == kIgnoredTarget) {
      losses[row] = 0;
      if (dlogits) std::fill_n(dlogits[row], vocabulary, D(0.0f));
      return;
    }
    LOCKSTEP_CHECK(target >= 0 && target < vocabulary, "cross_entropy: target {} of row {} with a vocabulary of {}",
                   target, row, vocabulary);
    const T top = largest_of(in, vocabulary), total = sum_of_exponentials(in, vocabulary, top),
            hit = load_some(in + target, 1)[0];
    losses[row] = std::log(total) + (top - hit);
    if (likeliest) likeliest[row] = hit >= top;
    if (!dlogits) return;
    write_softmax(dlogits[row], in, vocabulary, top, scale / total);
    dlogits[row][target] = target_gradient<D>(hit, top, total, scale);
  });
}

}  // namespace

void cross_entropy(const CrossEntropyArgs& a, lockstep::Stream& stream) {
  with_float(a.logits.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    const DType d = a.dlogits ? a.dlogits.dtype() : a.logits.dtype();
    if (d == a.logits.dtype()) return run<S, S>(a, Stream::of(stream));
    if constexpr (std::is_same_v<S, float>) {
      if (d == DType::bf16) return run<float, bf16>(a, Stream::of(stream));
      if (d == DType::f16) return run<float, f16>(a, Stream::of(stream));
    }
    LOCKSTEP_CHECK(false, "cross_entropy: gradient {} of logits {}", name_of(d), name_of(a.logits.dtype()));
  });
}

}  // namespace lockstep::cpu
