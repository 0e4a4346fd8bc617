#include "kernels/cross_entropy.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/rows.h"
#include "kernels/cpu/simd.h"
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
    constexpr int W = kLanes<T>;
    const std::int64_t whole = vocabulary / W * W;
    Vec<T> high = broadcast(-std::numeric_limits<T>::infinity());
    for (std::int64_t i = 0; i < whole; i += W) high = max_of<T>(load(in + i), high);
    T top = max<T>(high);
    for (std::int64_t i = whole; i < vocabulary; ++i) {
      const T v = static_cast<T>(in[i]);
      top = (v > top || v != v) ? v : top;
    }
    // Lanes sum what falls to them; the tail's lanes beyond the row are given -inf, which adds nothing.
    Vec<T> sums{};
    for (std::int64_t i = 0; i < whole; i += W) sums += exp(load(in + i) - top);
    if (whole < vocabulary) {
      Vec<T> last = broadcast(-std::numeric_limits<T>::infinity());
      for (std::int64_t i = whole; i < vocabulary; ++i) last[i - whole] = static_cast<T>(in[i]) - top;
      sums += exp(last);
    }
    const T total = sum<T>(sums), hit = load_some(in + target, 1)[0];
    losses[row] = std::log(total) + (top - hit);
    if (!dlogits) return;
    D* out = dlogits[row];
    const T factor = scale / total;
    // Forward, a vector read before its gradients are written: dlogits may lie over logits, and of 16 bits over 32 it
    // never comes further than what has been read.
    for_vectors<T>(vocabulary,
                   [&](std::int64_t i, auto load, auto store) { store(out + i, exp(load(in + i) - top) * factor); });
    // Computed from the logit kept aside; (p - 1)·scale rounds once in a narrow type.
    Vec<T> p = broadcast(hit - top);
    p = exp(p) / total;
    out[target] = static_cast<D>((p[0] - T(1)) * scale);
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
