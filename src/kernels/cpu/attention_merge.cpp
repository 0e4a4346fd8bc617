#include "kernels/attention_merge.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/rows.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/types.h"

namespace lockstep::cpu {

namespace {

// What a query's two sides weigh, together 1; of a side that has seen no keys, not even its elements are looked at.
template <class T>
struct Weights {
  static constexpr T kNothing = -std::numeric_limits<T>::infinity();
  bool old_counts, part_counts;
  T old_weight = 0, part_weight = 0;
  T lse = kNothing;

  Weights(T old_lse, T part_lse) : old_counts(old_lse != kNothing), part_counts(part_lse != kNothing) {
    if (!old_counts && !part_counts) return;
    const T top = std::max(old_lse, part_lse);  // a NaN that it loses comes out of the exponentials
    const T w = exp(broadcast(old_lse - top))[0], v = exp(broadcast(part_lse - top))[0], total = w + v;
    old_weight = w / total;
    part_weight = v / total;
    lse = top + std::log(total);
  }
};

template <class O, class P, class T>
void merge_row(O* o, const P* part, std::int64_t D, const Weights<T>& weights) {
  const Vec<T> w = broadcast(weights.old_weight), v = broadcast(weights.part_weight);
  for_vectors<T>(D, [&](std::int64_t i, auto load, auto store) {
    if (!weights.part_counts)
      store(o + i, weights.old_counts ? load(o + i) * w : Vec<T>{});
    else
      store(o + i, weights.old_counts ? fma(load(part + i), v, load(o + i) * w) : load(part + i) * v);
  });
}

}  // namespace

void attention_merge(const AttentionMergeArgs& a, lockstep::Stream& stream) {
  const std::int64_t length = a.part.dim(1), heads = a.part.dim(2), D = a.part.dim(3);
  with_float_and_result(a.part.dtype(), a.o.dtype(), [&](auto p, auto r) {
    using P = typename decltype(p)::Type;
    using O = typename decltype(r)::Type;
    using T = Compute<P>;
    O* o = a.o.data<O>();
    const P* part = a.part.data<P>();
    T* lse = a.lse.data<T>();
    const T* part_lse = a.part_lse.data<T>();
    each_row(Stream::of(stream), a.part.dim(0) * length, heads * D, [&](std::int64_t row, int) {
      const std::int64_t b = row / length, t = row % length;
      for (std::int64_t h = 0; h < heads; ++h) {
        const std::int64_t query = (b * heads + h) * length + t;
        const Weights<T> weights(a.first ? Weights<T>::kNothing : lse[query], part_lse[query]);
        merge_row(o + b * a.o.stride(0) + t * a.o.stride(1) + h * a.o.stride(2),
                  part + b * a.part.stride(0) + t * a.part.stride(1) + h * a.part.stride(2), D, weights);
        lse[query] = weights.lse;
      }
    });
  });
}

}  // namespace lockstep::cpu
