#include "kernels/quantize.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "kernels/cpu/rows.h"
#include "kernels/fp8_scale.h"
#include "tensor/fp8.h"

namespace lockstep::cpu {

namespace {

constexpr std::uint32_t kMagnitude = 0x7fffu;  // of a bf16's bits, which are in the order of magnitudes, NaN last

template <class Q>
void quantize_to(const QuantizeArgs& a, int largest_exponent, lockstep::Stream& stream) {
  const std::uint32_t bits = fp8_scale_bits(std::bit_cast<std::uint32_t>(*a.amax.data<float>()), largest_exponent);
  const float scale = std::bit_cast<float>(bits);
  *a.scale.data<float>() = scale;
  const float inverse = 1 / scale;  // exact: a power of two
  const std::int64_t R = a.x.dim(0), C = a.x.dim(1);
  const auto x = rows<bf16>(a.x);
  Q* const q = a.q ? a.q.data<Q>() : nullptr;
  Q* const turned = a.turned ? a.turned.data<Q>() : nullptr;
  each_row(Stream::of(stream), R, C, [&](std::int64_t row, int) {
    const bf16* from = x[row];
    for (std::int64_t i = 0; i < C; ++i) {
      const Q value(static_cast<float>(from[i]) * inverse);
      if (q) q[row * C + i] = value;
      if (turned) turned[i * R + row] = value;
    }
  });
}

}  // namespace

void amax(const AmaxArgs& a, lockstep::Stream& stream) {
  std::atomic<std::uint32_t> largest{0};
  const std::int64_t C = a.x.dim(1);
  const auto x = rows<bf16>(a.x);
  each_row(Stream::of(stream), a.x.dim(0), C, [&](std::int64_t row, int) {
    std::uint32_t here = 0;
    for (std::int64_t i = 0; i < C; ++i) here = std::max(here, x[row][i].bits & kMagnitude);
    std::uint32_t seen = largest.load();
    while (here > seen && !largest.compare_exchange_weak(seen, here)) {
    }
  });
  *a.amax.data<float>() = std::bit_cast<float>(largest.load() << 16);
}

void quantize(const QuantizeArgs& a, lockstep::Stream& stream) {
  if ((a.q ? a.q : a.turned).dtype() == DType::f8e4m3)
    quantize_to<f8e4m3>(a, 8, stream);
  else
    quantize_to<f8e5m2>(a, 15, stream);
}

}  // namespace lockstep::cpu
