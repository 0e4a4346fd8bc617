#include "kernels/random.h"

#include <cmath>
#include <numbers>

#include "base/philox.h"
#include "kernels/cpu/dropout_mask.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/types.h"

namespace lockstep::cpu {

namespace {

// Normal numbers 2·pair and 2·pair + 1 of the key's sequence (Box-Muller on two 53-bit uniforms).
void two_normals(std::uint64_t key, std::uint64_t pair, double& first, double& second) {
  const Philox4 w = philox(key, pair);
  const std::uint64_t a = (static_cast<std::uint64_t>(w[0]) << 32 | w[1]) >> 11;
  const std::uint64_t b = (static_cast<std::uint64_t>(w[2]) << 32 | w[3]) >> 11;
  const double radius = std::sqrt(-2 * std::log((static_cast<double>(a) + 1) * 0x1p-53));
  const double angle = 2 * std::numbers::pi * static_cast<double>(b) * 0x1p-53;
  first = radius * std::cos(angle);
  second = radius * std::sin(angle);
}

}  // namespace

void init_normal(const InitNormalArgs& a, lockstep::Stream& stream) {
  with_float(a.x.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    S* x = a.x.data<S>();
    each_range(Stream::of(stream), a.x.elements(), [&](std::int64_t begin, std::int64_t count) {
      std::uint64_t have = ~std::uint64_t{0};
      double pair[2] = {};
      for (std::int64_t i = begin; i < begin + count; ++i) {
        const std::int64_t at = a.row == 0 ? i : i / a.row * a.pitch + i % a.row;
        const std::uint64_t index = static_cast<std::uint64_t>(a.first + at);
        if (index >> 1 != have) two_normals(a.key, have = index >> 1, pair[0], pair[1]);
        x[i] = convert<double, S>(pair[index & 1] * a.std);
      }
    });
  });
}

void dropout(const DropoutArgs& a, lockstep::Stream& stream) {
  with_float(a.x.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    using T = Compute<S>;
    const std::int64_t length = a.positions.elements(), width = a.x.dim(1);
    const std::int32_t* positions = a.positions.data<std::int32_t>();
    const S* x = a.x.data<S>();
    S* y = a.y.data<S>();
    const T scale = static_cast<T>(1 / (1 - a.probability));
    const DropoutMask mask(a.key, a.probability);
    each_row(Stream::of(stream), a.x.dim(0), width, [&](std::int64_t row, int) {
      const std::int64_t at = a.first_row + row;
      auto keep = mask.row(a.first_sample + at / length, positions[at % length]);
      for (std::int64_t c = 0; c < width; ++c) {
        const T value = static_cast<T>(x[row * width + c]) * scale;
        y[row * width + c] = static_cast<S>(keep(c) ? value : T(0));
      }
    });
  });
}

}  // namespace lockstep::cpu
