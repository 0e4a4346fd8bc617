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

namespace {

// A double as the float that rounds on to a 16-bit type as the double itself would: rounded to odd, so that the second
// rounding sees that something was lost by the first.
float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || !std::isfinite(nearest)) return nearest;
  const bool away = std::abs(static_cast<double>(nearest)) > std::abs(value);
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(nearest) - (away ? 1u : 0u)) | 1u);
}

template <class From, class To>
To convert(From value) {
  if constexpr (std::is_arithmetic_v<From> && std::is_arithmetic_v<To>)
    return static_cast<To>(value);
  else if constexpr (std::is_same_v<From, double>)
    return static_cast<To>(round_to_odd(value));
  else
    return static_cast<To>(static_cast<float>(value));
}

}  // namespace

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

void fill(const FillArgs& args, lockstep::Stream& stream) {
  with_float(args.y.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    S* y = args.y.data<S>();
    const S value = static_cast<S>(static_cast<Compute<S>>(args.value));
    each_range(Stream::of(stream), args.y.elements(),
               [&](std::int64_t begin, std::int64_t count) { std::fill_n(y + begin, count, value); });
  });
}

}  // namespace lockstep::cpu
