#include "kernels/norm_sum.h"

#include <algorithm>
#include <mutex>

#include "kernels/cpu/rows.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/types.h"

namespace lockstep::cpu {

namespace {

// The sum of squares of one block, in double: eight lanes, added as one fixed tree.
template <class S>
double block_sum(const S* x, std::int64_t count) {
  Vec<double> sums{};
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    Vec<double> v;
    for (int lane = 0; lane < 8; ++lane) v[lane] = static_cast<double>(static_cast<Compute<S>>(x[i + lane]));
    sums = fma(v, v, sums);
  }
  for (int lane = 0; i + lane < count; ++lane) {
    const double v = static_cast<double>(static_cast<Compute<S>>(x[i + lane]));
    sums[lane] = std::fma(v, v, sums[lane]);
  }
  return sum<double>(sums);
}

}  // namespace

void norm_sum(const NormSumArgs& a, lockstep::Stream& stream) {
  std::int64_t* bins = a.bins.data<std::int64_t>();
  if (!a.accumulate) std::fill_n(bins, kNormBins, 0);
  with_float(a.x.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    const S* x = a.x.data<S>();
    std::mutex mutex;  // integers: the order in which ranges come in does not matter
    each_range(Stream::of(stream), a.x.elements(), [&](std::int64_t begin, std::int64_t count) {
      std::int64_t mine[kNormBins] = {};
      for (std::int64_t i = 0; i < count; i += kNormBlock)
        norm_add(mine, block_sum(x + begin + i, std::min<std::int64_t>(kNormBlock, count - i)));
      const std::lock_guard lock(mutex);
      for (int bin = 0; bin < kNormBins; ++bin) bins[bin] += mine[bin];
    });
  });
}

}  // namespace lockstep::cpu
