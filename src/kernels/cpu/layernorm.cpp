#include "kernels/layernorm.h"

#include <vector>

#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/largest_magnitude.h"
#include "kernels/cpu/residual.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/types.h"
#include "kernels/quantize.h"

namespace lockstep::cpu {

namespace {

template <class S>
void forward(const LayerNormForwardArgs& a, Stream& stream) {
  using T = Compute<S>;
  const std::int64_t columns = a.x.dim(-1), count = a.rstd.elements();
  const auto x = rows<S>(a.x), residual = rows<S>(a.residual);
  const auto y = rows<S>(a.y), sums = rows<S>(a.sum);
  const S *weight = a.weight.data<S>(), *bias = a.bias.data<S>();
  T *mean = a.mean.data<T>(), *rstd = a.rstd.data<T>();
  LargestMagnitude largest;
  each_row(stream, count, columns, [&](std::int64_t row, int) {
    const S* in = x[row];
    if (residual) in = join_residual(sums[row], in, residual[row], columns);
    Vec<T> total{};
    for_vectors<T>(columns, [&](std::int64_t i, auto load, auto) { total += load(in + i); });
    const T m = sum<T>(total) / static_cast<T>(columns);
    // A second pass around the mean: the one-pass formula cancels when the mean is large. The tail's filling counts as
    // the mean.
    Vec<T> squares{};
    const std::int64_t whole = columns / kLanes<T> * kLanes<T>;
    for (std::int64_t i = 0; i < whole; i += kLanes<T>) {
      const Vec<T> v = load(in + i) - m;
      squares = fma(v, v, squares);
    }
    for (std::int64_t i = whole; i < columns; ++i) {
      const T v = static_cast<T>(in[i]) - m;
      squares[i - whole] = std::fma(v, v, squares[i - whole]);
    }
    const T r = T(1) / std::sqrt(sum<T>(squares) / static_cast<T>(columns) + static_cast<T>(a.eps));
    mean[row] = m;
    rstd[row] = r;
    std::vector<S> unwritten(y ? 0 : static_cast<std::size_t>(columns));
    S* out = y ? y[row] : unwritten.data();
    for_vectors<T>(columns, [&](std::int64_t i, auto load, auto store) {
      store(out + i, fma((load(in + i) - m) * r, load(weight + i), load(bias + i)));
    });
    if constexpr (std::is_same_v<S, bf16>)
      if (a.amax) largest.note(out, columns);
  });
  if (a.amax) *a.amax.data<float>() = largest.value();
}

template <class S>
void backward_input(const LayerNormBackwardInputArgs& a, Stream& stream) {
  using T = Compute<S>;
  const std::int64_t columns = a.x.dim(-1), count = a.rstd.elements();
  const auto x = rows<S>(a.x), dy = rows<S>(a.dy), dresidual = rows<S>(a.dresidual);
  const auto dx = rows<S>(a.dx), y = rows<S>(a.y);
  const S *weight = a.weight.data<S>(), *bias = a.bias.none() ? nullptr : a.bias.data<S>();
  const T *mean = a.mean.data<T>(), *rstd = a.rstd.data<T>();
  each_row(stream, count, columns, [&](std::int64_t row, int) {
    const S *in = x[row], *grad = dy[row];
    const T r = rstd[row], m = mean[row];
    Vec<T> plain{}, dots{};  // the tail's weights are zero, so what fills it adds nothing
    for_vectors<T>(columns, [&](std::int64_t i, auto load, auto) {
      const Vec<T> g = load(grad + i) * load(weight + i);
      plain += g;
      dots = fma(g, (load(in + i) - m) * r, dots);
    });
    const T mean_g = sum<T>(plain) / static_cast<T>(columns), mean_gx = sum<T>(dots) / static_cast<T>(columns);
    S *out = dx[row], *again = y ? y[row] : nullptr;
    const S* other = dresidual ? dresidual[row] : nullptr;
    for_vectors<T>(columns, [&](std::int64_t i, auto load, auto store) {
      const Vec<T> hat = (load(in + i) - m) * r, w = load(weight + i);
      const Vec<T> d = (load(grad + i) * w - mean_g - hat * mean_gx) * r;
      store(out + i, other ? load(other + i) + d : d);
      if (again) store(again + i, fma(hat, w, load(bias + i)));
    });
  });
}

template <class S, class G>
void backward_weight(const LayerNormBackwardWeightArgs& a, Stream& stream) {
  using T = Compute<S>;
  const auto x = rows<S>(a.x), dy = rows<S>(a.dy);
  const T *mean = a.mean.data<T>(), *rstd = a.rstd.data<T>();
  const std::int64_t count = a.rstd.elements(), columns = a.x.dim(-1);
  column_sums<T>(stream, a.dweight.data<G>(), count, columns, a.accumulate,
                 [&](std::int64_t row, std::int64_t c, auto load) {
                   return load(dy[row] + c) * ((load(x[row] + c) - mean[row]) * rstd[row]);
                 });
  column_sums<T>(stream, a.dbias.data<G>(), count, columns, a.accumulate,
                 [&](std::int64_t row, std::int64_t c, auto load) { return load(dy[row] + c); });
}

}  // namespace

void layernorm_forward(const LayerNormForwardArgs& a, lockstep::Stream& stream) {
  with_float(a.x.dtype(), [&](auto s) { forward<typename decltype(s)::Type>(a, Stream::of(stream)); });
}

void layernorm_backward_input(const LayerNormBackwardInputArgs& a, lockstep::Stream& stream) {
  with_float(a.x.dtype(), [&](auto s) { backward_input<typename decltype(s)::Type>(a, Stream::of(stream)); });
  if (a.amax) cpu::amax({.amax = a.amax, .x = a.dx}, stream);
}

void layernorm_backward_weight(const LayerNormBackwardWeightArgs& a, lockstep::Stream& stream) {
  with_float_and_result(a.x.dtype(), a.dweight.dtype(), [&](auto s, auto g) {
    backward_weight<typename decltype(s)::Type, typename decltype(g)::Type>(a, Stream::of(stream));
  });
}

}  // namespace lockstep::cpu
