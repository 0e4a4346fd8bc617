#include "kernels/elementwise.h"

#include <algorithm>

#include "kernels/cpu/rows.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/types.h"

namespace lockstep::cpu {

void add(const AddArgs& args, lockstep::Stream& stream) {
  with_float(args.y.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    S* y = args.y.data<S>();
    const S *a = args.a.data<S>(), *b = args.b.data<S>();
    each_range(Stream::of(stream), args.y.elements(), [&](std::int64_t begin, std::int64_t count) {
      for_vectors<Compute<S>>(count, [&](std::int64_t i, auto load, auto store) {
        store(y + begin + i, load(a + begin + i) + load(b + begin + i));
      });
    });
  });
}

void cast(const CastArgs& args, lockstep::Stream& stream) {
  with_float(args.x.dtype(), [&](auto from) {
    with_float(args.y.dtype(), [&](auto to) {
      using From = typename decltype(from)::Type;
      using To = typename decltype(to)::Type;
      const From* x = args.x.data<From>();
      To* y = args.y.data<To>();
      each_range(Stream::of(stream), args.y.elements(), [&](std::int64_t begin, std::int64_t count) {
        if constexpr (!std::is_same_v<From, double> && !std::is_same_v<To, double>) {
          for_vectors<float>(count,
                             [&](std::int64_t i, auto load, auto store) { store(y + begin + i, load(x + begin + i)); });
        } else {
          for (std::int64_t i = begin; i < begin + count; ++i) y[i] = convert<From, To>(x[i]);
        }
      });
    });
  });
}

void scale(const ScaleArgs& args, lockstep::Stream& stream) {
  with_float(args.y.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    using T = Compute<S>;
    S* y = args.y.data<S>();
    const S* x = args.x.data<S>();
    const T factor = static_cast<T>(args.factor);
    each_range(Stream::of(stream), args.y.elements(), [&](std::int64_t begin, std::int64_t count) {
      for_vectors<T>(
          count, [&](std::int64_t i, auto load, auto store) { store(y + begin + i, load(x + begin + i) * factor); });
    });
  });
}

void fill(const FillArgs& args, lockstep::Stream& stream) {
  with_float(args.y.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    S* y = args.y.data<S>();
    const S value = convert<double, S>(args.value);
    each_range(Stream::of(stream), args.y.elements(),
               [&](std::int64_t begin, std::int64_t count) { std::fill_n(y + begin, count, value); });
  });
}

}  // namespace lockstep::cpu
