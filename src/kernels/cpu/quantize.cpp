#include "kernels/quantize.h"

#include <bit>
#include <cmath>

#include "kernels/cpu/largest_magnitude.h"
#include "kernels/cpu/rows.h"
#include "kernels/fp8_scale.h"
#include "tensor/fp8.h"

namespace lockstep::cpu {

namespace {

// What a norm gave of an element, by the norm's operations; without one, the element.
class NormOfRow {
 public:
  explicit NormOfRow(const QuantizedNorm& norm)
      : weight_(data<bf16>(norm.weight)),
        bias_(data<bf16>(norm.bias)),
        mean_(data<float>(norm.mean)),
        rstd_(data<float>(norm.rstd)) {}

  bf16 operator()(bf16 x, std::int64_t row, std::int64_t column) const {
    if (!rstd_) return x;
    const float v = static_cast<float>(x), w = static_cast<float>(weight_[column]), r = rstd_[row];
    if (!mean_) return bf16(v * r * w);
    return bf16(std::fma((v - mean_[row]) * r, w, static_cast<float>(bias_[column])));
  }

 private:
  template <class T>
  static const T* data(const ConstTensor& t) {
    return t ? t.data<T>() : nullptr;
  }
  const bf16 *weight_, *bias_;
  const float *mean_, *rstd_;
};

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
  const NormOfRow norm(a.norm);
  each_row(Stream::of(stream), R, C, [&](std::int64_t row, int) {
    const bf16* from = x[row];
    for (std::int64_t i = 0; i < C; ++i) {
      const Q value(static_cast<float>(norm(from[i], row, i)) * inverse);
      if (q) q[row * C + i] = value;
      if (turned) turned[i * R + row] = value;
    }
  });
}

}  // namespace

void amax(const AmaxArgs& a, lockstep::Stream& stream) {
  LargestMagnitude largest(a.joins ? *a.amax.data<float>() : 0);
  const std::int64_t C = a.x.dim(1);
  const auto x = rows<bf16>(a.x);
  each_row(Stream::of(stream), a.x.dim(0), C, [&](std::int64_t row, int) { largest.note(x[row], C); });
  *a.amax.data<float>() = largest.value();
}

void quantize(const QuantizeArgs& a, lockstep::Stream& stream) {
  if ((a.q ? a.q : a.turned).dtype() == DType::f8e4m3)
    quantize_to<f8e4m3>(a, 8, stream);
  else
    quantize_to<f8e5m2>(a, 15, stream);
}

}  // namespace lockstep::cpu
