// Masks are the cpu's bits. Normal numbers are made in double from the same uniform ones, but with CUDA's log, cos and
// sin: a result may be an ulp or two of double away from the host's before its one rounding to the element type.
#include "kernels/random.h"

#include <numbers>

#include "base/philox.h"
#include "kernels/cuda/dropout_mask.cuh"
#include "kernels/cuda/rows.cuh"

namespace lockstep::cuda {

namespace {

// One thread makes normal numbers 2·pair and 2·pair + 1 of the key's sequence (Box-Muller on two 53-bit uniforms) and
// writes those that are in its row: numbers [begin, begin + length). A row of `length` has `pairs` at most.
template <class S>
__global__ void __launch_bounds__(kThreads)
    init_normal_kernel(S* x, std::int64_t n, std::uint64_t key, std::int64_t first, std::int64_t length,
                       std::int64_t pitch, double deviation) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads, pairs = length / 2 + 1;
  for (std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       item < ceil_div(n, length) * pairs; item += stride) {
    const std::int64_t row = item / pairs, begin = first + row * pitch, pair = begin / 2 + item % pairs;
    const std::int64_t i = 2 * pair - begin, end = min(length, n - row * length);
    S* out = x + row * length;
    const Philox4 w = philox(key, static_cast<std::uint64_t>(pair));
    const std::uint64_t a = (static_cast<std::uint64_t>(w[0]) << 32 | w[1]) >> 11;
    const std::uint64_t b = (static_cast<std::uint64_t>(w[2]) << 32 | w[3]) >> 11;
    const double radius = sqrt(-2 * log((static_cast<double>(a) + 1) * 0x1p-53));
    const double angle = 2 * std::numbers::pi * static_cast<double>(b) * 0x1p-53;
    if (i >= 0 && i < end) out[i] = narrow<S>(radius * cos(angle) * deviation);
    if (i + 1 < end) out[i + 1] = narrow<S>(radius * sin(angle) * deviation);
  }
}

// One thread has four neighbouring columns of one row: those that share a Philox call.
template <class S>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(S* y, const S* x, const std::int32_t* positions, std::int64_t first_sample, std::int64_t first_row,
                   std::int64_t rows, std::int64_t length, std::int64_t width, Compute<S> scale, DropoutMask mask) {
  using T = Compute<S>;
  const std::int64_t groups = (width + 3) / 4;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; item < rows * groups;
       item += stride) {
    const std::int64_t row = item / groups, first = item % groups * 4;
    const RowPlace at = place_of(first_row + row, length);
    auto keep = mask.row(first_sample + at.outer, positions[at.inner]);
    for (std::int64_t c = first; c < min(width, first + 4); ++c) {
      const T value = widen(x[row * width + c]) * scale;
      y[row * width + c] = narrow<S>(keep(c) ? value : T(0));
    }
  }
}

}  // namespace

void init_normal(const InitNormalArgs& a, lockstep::Stream& stream) {
  const std::int64_t n = a.x.elements(), length = a.row > 0 ? a.row : n;
  if (n == 0) return;
  with_float(a.x.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    init_normal_kernel<S><<<blocks_for(ceil_div(n, length) * (length / 2 + 1)), kThreads, 0, native(stream)>>>(
        a.x.data<S>(), n, a.key, a.first, length, a.pitch, a.std);
  });
  check_launch("init_normal");
}

void dropout(const DropoutArgs& a, lockstep::Stream& stream) {
  const std::int64_t length = a.positions.elements(), width = a.x.dim(1), rows = a.x.dim(0);
  const DropoutMask mask(a.key, a.probability);
  with_float(a.x.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    using T = Compute<S>;
    dropout_kernel<S><<<blocks_for(rows * ceil_div(width, 4)), kThreads, 0, native(stream)>>>(
        a.y.data<S>(), a.x.data<S>(), a.positions.data<std::int32_t>(), a.first_sample, a.first_row, rows, length,
        width, static_cast<T>(1 / (1 - a.probability)), mask);
  });
  check_launch("dropout");
}

}  // namespace lockstep::cuda
