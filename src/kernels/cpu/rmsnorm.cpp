#include "kernels/rmsnorm.h"

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
void forward(const RmsNormForwardArgs& a, Stream& stream) {
  using T = Compute<S>;
  const std::int64_t columns = a.x.dim(-1), count = a.rstd.elements();
  const auto x = rows<S>(a.x), residual = rows<S>(a.residual);
  const auto y = rows<S>(a.y), sums = rows<S>(a.sum);
  const S* weight = a.weight.data<S>();
  T* rstd = a.rstd.data<T>();
  LargestMagnitude largest;
  each_row(stream, count, columns, [&](std::int64_t row, int) {
    const S* in = x[row];
    if (residual) in = join_residual(sums[row], in, residual[row], columns);
    Vec<T> squares{};
    for_vectors<T>(columns, [&](std::int64_t i, auto load, auto) {
      const Vec<T> v = load(in + i);
      squares = fma(v, v, squares);
    });
    const T r = T(1) / std::sqrt(sum<T>(squares) / static_cast<T>(columns) + static_cast<T>(a.eps));
    rstd[row] = r;
    std::vector<S> unwritten(y ? 0 : static_cast<std::size_t>(columns));
    S* out = y ? y[row] : unwritten.data();
    for_vectors<T>(columns,
                   [&](std::int64_t i, auto load, auto store) { store(out + i, load(in + i) * r * load(weight + i)); });
    if constexpr (std::is_same_v<S, bf16>)
      if (a.amax) largest.note(out, columns);
  });
  if (a.amax) *a.amax.data<float>() = largest.value();
}

template <class S>
void backward_input(const RmsNormBackwardInputArgs& a, Stream& stream) {
  using T = Compute<S>;
  const std::int64_t columns = a.x.dim(-1), count = a.rstd.elements();
  const auto x = rows<S>(a.x), dy = rows<S>(a.dy), dresidual = rows<S>(a.dresidual);
  const auto dx = rows<S>(a.dx), y = rows<S>(a.y);
  const S* weight = a.weight.data<S>();
  const T* rstd = a.rstd.data<T>();
  each_row(stream, count, columns, [&](std::int64_t row, int) {
    const S *in = x[row], *grad = dy[row];
    const T r = rstd[row];
    Vec<T> dots{};
    for_vectors<T>(columns, [&](std::int64_t i, auto load, auto) {
      dots = fma(load(grad + i) * load(weight + i), load(in + i), dots);
    });
    // dx = r·(w∘dy) - x·r³·(Σ w∘dy∘x)/C
    const T pull = sum<T>(dots) / static_cast<T>(columns) * r * r * r;
    S *out = dx[row], *again = y ? y[row] : nullptr;
    const S* other = dresidual ? dresidual[row] : nullptr;
    for_vectors<T>(columns, [&](std::int64_t i, auto load, auto store) {
      const Vec<T> v = load(in + i), w = load(weight + i), d = load(grad + i) * w * r - v * pull;
      store(out + i, other ? load(other + i) + d : d);
      if (again) store(again + i, v * r * w);
    });
  });
}

template <class S, class G>
void backward_weight(const RmsNormBackwardWeightArgs& a, Stream& stream) {
  using T = Compute<S>;
  const auto x = rows<S>(a.x), dy = rows<S>(a.dy);
  const T* rstd = a.rstd.data<T>();
  column_sums<T>(
      stream, a.dweight.data<G>(), a.rstd.elements(), a.x.dim(-1), a.accumulate,
      [&](std::int64_t row, std::int64_t c, auto load) { return load(dy[row] + c) * (load(x[row] + c) * rstd[row]); });
}

}  // namespace

void rmsnorm_forward(const RmsNormForwardArgs& a, lockstep::Stream& stream) {
  with_float(a.x.dtype(), [&](auto s) { forward<typename decltype(s)::Type>(a, Stream::of(stream)); });
}

void rmsnorm_backward_input(const RmsNormBackwardInputArgs& a, lockstep::Stream& stream) {
  with_float(a.x.dtype(), [&](auto s) { backward_input<typename decltype(s)::Type>(a, Stream::of(stream)); });
  if (a.amax) cpu::amax({.amax = a.amax, .x = a.dx}, stream);
}

void rmsnorm_backward_weight(const RmsNormBackwardWeightArgs& a, lockstep::Stream& stream) {
  with_float_and_result(a.x.dtype(), a.dweight.dtype(), [&](auto s, auto g) {
    backward_weight<typename decltype(s)::Type, typename decltype(g)::Type>(a, Stream::of(stream));
  });
}

}  // namespace lockstep::cpu
