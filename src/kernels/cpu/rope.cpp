#include "kernels/rope.h"

#include <cmath>
#include <numbers>

#include "base/error.h"
#include "kernels/cpu/largest_magnitude.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/types.h"

namespace lockstep::cpu {

namespace {

double slowed(double frequency, const RopeSlowing& s) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < s.original_positions / s.high_freq_factor) return frequency;
  if (wavelength > s.original_positions / s.low_freq_factor) return frequency / s.factor;
  const double blend =
      (s.original_positions / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - blend) * frequency / s.factor + blend * frequency;
}

void check_positions(const ConstTensor& positions, std::int64_t rows) {
  const std::int32_t* p = positions.data<std::int32_t>();
  for (std::int64_t b = 0; b < positions.dim(0); ++b)
    for (std::int64_t t = 0; t < positions.dim(1); ++t) {
      const std::int32_t at = p[b * positions.stride(0) + t];
      LOCKSTEP_CHECK(at >= 0 && at < rows, "rope: position {} in tables of {} rows", at, rows);
    }
}

}  // namespace

void rope_table(const RopeTableArgs& a, lockstep::Stream& stream) {
  with_float(a.cos.dtype(), [&](auto s) {
    using T = typename decltype(s)::Type;
    const std::int64_t half = a.cos.dim(1);
    const std::int32_t* positions = a.positions.data<std::int32_t>();
    T *cos = a.cos.data<T>(), *sin = a.sin.data<T>();
    each_row(Stream::of(stream), a.cos.dim(0), half, [&](std::int64_t row, int) {
      for (std::int64_t i = 0; i < half; ++i) {
        double frequency = std::pow(a.theta, -static_cast<double>(i) / static_cast<double>(half));
        if (a.slowing) frequency = slowed(frequency, *a.slowing);
        const double angle = positions[row] * frequency;
        cos[row * half + i] = static_cast<T>(static_cast<Compute<T>>(std::cos(angle)));
        sin[row * half + i] = static_cast<T>(static_cast<Compute<T>>(std::sin(angle)));
      }
    });
  });
}

void rope(const RopeArgs& a, lockstep::Stream& stream) {
  if (a.positions) check_positions(a.positions, a.cos.dim(0));
  with_float(a.x.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    using T = Compute<S>;
    const std::int64_t length = a.x.dim(1), heads = a.x.dim(2), half = a.x.dim(3) / 2;
    S* x = a.x.data<S>();
    const std::int32_t* positions = a.positions ? a.positions.data<std::int32_t>() : nullptr;
    const T *cos = a.cos.data<T>(), *sin = a.sin.data<T>();
    const T direction = a.inverse ? T(-1) : T(1);
    LargestMagnitude largest;
    each_row(Stream::of(stream), a.x.dim(0) * length, heads * half, [&](std::int64_t row, int) {
      const std::int64_t b = row / length, t = row % length;
      const std::int64_t angle = positions ? positions[b * a.positions.stride(0) + t] : t;
      for (std::int64_t h = 0; h < heads; ++h) {
        S* low = x + b * a.x.stride(0) + t * a.x.stride(1) + h * a.x.stride(2);
        S* high = low + half;
        for_vectors<T>(half, [&](std::int64_t i, auto load, auto store) {
          const Vec<T> c = load(cos + angle * half + i), d = load(sin + angle * half + i) * direction;
          const Vec<T> u = load(low + i), v = load(high + i);
          store(low + i, fma(u, c, -(v * d)));
          store(high + i, fma(v, c, u * d));
        });
        if constexpr (std::is_same_v<S, bf16>)
          if (a.amax) largest.note(low, 2 * half);
      }
    });
    if (a.amax) *a.amax.data<float>() = largest.value();
  });
}

}  // namespace lockstep::cpu
