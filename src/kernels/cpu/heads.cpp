#include "kernels/heads.h"

#include <algorithm>

#include "kernels/cpu/rows.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/types.h"

namespace lockstep::cpu {

namespace {

template <class To, class From>
void copy_row(To* y, const From* x, std::int64_t count, bool accumulate) {
  if constexpr (std::is_same_v<From, To>) {
    if (!accumulate) {
      if (y != x) std::copy_n(x, count, y);
      return;
    }
  }
  if constexpr (std::is_same_v<Compute<From>, Compute<To>>) {
    if (accumulate)
      for_vectors<Compute<To>>(count,
                               [&](std::int64_t i, auto load, auto store) { store(y + i, load(y + i) + load(x + i)); });
    else
      for_vectors<Compute<To>>(count, [&](std::int64_t i, auto load, auto store) { store(y + i, load(x + i)); });
  } else {  // fp64 beside another
    for (std::int64_t i = 0; i < count; ++i)
      y[i] = accumulate ? convert<double, To>(convert<To, double>(y[i]) + convert<From, double>(x[i]))
                        : convert<From, To>(x[i]);
  }
}

}  // namespace

void copy_heads(const CopyHeadsArgs& a, lockstep::Stream& stream) {
  const std::int64_t T = a.x.dim(1), H = a.x.dim(2), D = a.x.dim(3);
  // Heads that are adjacent in both operands are one row.
  const bool joined = a.x.stride(2) == D && a.y.stride(2) == D;
  const std::int64_t pieces = joined ? 1 : H, width = joined ? H * D : D;
  with_float(a.x.dtype(), [&](auto from) {
    with_float(a.y.dtype(), [&](auto to) {
      using From = typename decltype(from)::Type;
      using To = typename decltype(to)::Type;
      const From* x = a.x.data<From>();
      To* y = a.y.data<To>();
      each_row(Stream::of(stream), a.x.dim(0) * T, H * D, [&](std::int64_t row, int) {
        const std::int64_t b = row / T, t = row % T;
        for (std::int64_t h = 0; h < pieces; ++h)
          copy_row(y + b * a.y.stride(0) + t * a.y.stride(1) + h * a.y.stride(2),
                   x + b * a.x.stride(0) + t * a.x.stride(1) + h * a.x.stride(2), width, a.accumulate);
      });
    });
  });
}

}  // namespace lockstep::cpu
