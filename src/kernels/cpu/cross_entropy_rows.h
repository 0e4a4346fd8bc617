// What the losses do with a row of logits, whole or some columns of it: lanes take what falls to them, so that the
// order of a sum is a function of how many logits there are.
#pragma once
#include <cstdint>
#include <limits>

#include "kernels/cpu/simd.h"

namespace lockstep::cpu {

// The largest logit, -inf where there is none; a NaN anywhere comes out as NaN.
template <class S>
Compute<S> largest_of(const S* in, std::int64_t count) {
  using T = Compute<S>;
  constexpr int W = kLanes<T>;
  const std::int64_t whole = count / W * W;
  Vec<T> high = broadcast(-std::numeric_limits<T>::infinity());
  for (std::int64_t i = 0; i < whole; i += W) high = max_of<T>(load(in + i), high);
  T top = max<T>(high);
  for (std::int64_t i = whole; i < count; ++i) {
    const T v = static_cast<T>(in[i]);
    top = (v > top || v != v) ? v : top;
  }
  return top;
}

// The sum of exp(logit - top). The tail's lanes beyond the row are given -inf, which adds nothing.
template <class S>
Compute<S> sum_of_exponentials(const S* in, std::int64_t count, Compute<S> top) {
  using T = Compute<S>;
  constexpr int W = kLanes<T>;
  const std::int64_t whole = count / W * W;
  Vec<T> sums{};
  for (std::int64_t i = 0; i < whole; i += W) sums += exp(load(in + i) - top);
  if (whole < count) {
    Vec<T> last = broadcast(-std::numeric_limits<T>::infinity());
    for (std::int64_t i = whole; i < count; ++i) last[i - whole] = static_cast<T>(in[i]) - top;
    sums += exp(last);
  }
  return sum<T>(sums);
}

// out = exp(logit - top)·factor. Forward, a vector read before its gradients are written: out may overlay the logits,
// and of 16 bits over 32 it never comes further than what has been read.
template <class S, class D>
void write_softmax(D* out, const S* in, std::int64_t count, Compute<S> top, Compute<S> factor) {
  using T = Compute<S>;
  for_vectors<T>(count,
                 [&](std::int64_t i, auto load, auto store) { store(out + i, exp(load(in + i) - top) * factor); });
}

// The gradient at the target, from its logit kept aside; (p - 1)·scale rounds once in a narrow type.
template <class D, class T>
D target_gradient(T hit, T top, T total, T scale) {
  Vec<T> p = broadcast(hit - top);
  p = exp(p) / total;
  return static_cast<D>((p[0] - T(1)) * scale);
}

}  // namespace lockstep::cpu
