// A radix select: digit by digit, from the highest, the bits of the k-th largest magnitude are found by counting how
// many elements have each value of the digit. Bits of a float without its sign are in the order of magnitudes, and
// those of a NaN come last. Counts are integers, so no order of ranges changes the result.
#include "kernels/top_k.h"

#include <array>
#include <bit>
#include <cmath>
#include <mutex>

#include "base/error.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/types.h"

namespace lockstep::cpu {

namespace {

constexpr int kDigitBits = 11;
using Counts = std::array<std::int64_t, 1 << kDigitBits>;

template <class A>
using Bits = std::conditional_t<std::is_same_v<A, double>, std::uint64_t, std::uint32_t>;

template <class A>
Bits<A> magnitude_of(A v) {
  constexpr int kWidth = 8 * sizeof(A);
  return std::bit_cast<Bits<A>>(v) & ~(Bits<A>{1} << (kWidth - 1));
}

// The k-th largest of the magnitudes, and how many of those that are equal to it belong to the k.
template <class A, class Magnitude>
std::pair<Bits<A>, std::int64_t> find_kth(Stream& stream, std::int64_t n, std::int64_t k, const Magnitude& magnitude) {
  Bits<A> found = 0, known = 0;  // the digits so far, and which bits they are
  for (int shift = 8 * sizeof(A); shift > 0;) {
    const int bits = std::min(kDigitBits, shift);
    shift -= bits;
    const Bits<A> digit = (Bits<A>{1} << bits) - 1;
    Counts all{};
    std::mutex mutex;
    each_range(stream, n, [&](std::int64_t begin, std::int64_t count) {
      Counts mine{};
      for (std::int64_t i = begin; i < begin + count; ++i)
        if (const Bits<A> m = magnitude(i); (m & known) == found) ++mine[(m >> shift) & digit];
      const std::lock_guard lock(mutex);
      for (std::size_t d = 0; d <= digit; ++d) all[d] += mine[d];
    });
    auto d = static_cast<std::size_t>(digit);
    for (; all[d] < k; --d) k -= all[d];  // those above it are chosen, all of them
    found |= static_cast<Bits<A>>(d) << shift;
    known |= digit << shift;
  }
  return {found, k};
}

}  // namespace

void select_top(const SelectTopArgs& a, lockstep::Stream& stream) {
  with_float(a.x.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    using A = std::conditional_t<std::is_same_v<S, double>, double, float>;
    const std::int64_t n = a.x.elements(), k = a.values.elements();
    const S* x = a.x.data<S>();
    A* residual = a.residual ? a.residual.data<A>() : nullptr;
    if (residual)
      each_range(Stream::of(stream), n, [&](std::int64_t begin, std::int64_t count) {
        for (std::int64_t i = begin; i < begin + count; ++i) residual[i] += convert<S, A>(x[i]);
      });
    const auto v = [&](std::int64_t i) { return residual ? residual[i] : convert<S, A>(x[i]); };
    const auto [least, equals] =
        find_kth<A>(Stream::of(stream), n, k, [&](std::int64_t i) { return magnitude_of(v(i)); });
    S* values = a.values.data<S>();
    auto* indices = a.indices.data<std::int32_t>();
    std::int64_t chosen = 0, left = equals;
    for (std::int64_t i = 0; i < n; ++i) {
      const A value = v(i);
      const Bits<A> m = magnitude_of(value);
      const bool takes = m > least || (m == least && left > 0);
      if (takes) {
        left -= m == least;
        values[chosen] = convert<A, S>(value);
        indices[chosen++] = static_cast<std::int32_t>(a.first + i);
      }
      if (!residual) continue;
      const A rest = takes ? value - convert<S, A>(values[chosen - 1]) : value;
      residual[i] = std::isfinite(rest) ? rest : 0;
    }
    LOCKSTEP_CHECK(chosen == k, "select_top: {} of {} chosen", chosen, k);
  });
}

void add_at(const AddAtArgs& a, lockstep::Stream&) {
  with_float(a.y.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    using A = std::conditional_t<std::is_same_v<S, double>, double, float>;
    const std::int64_t n = a.y.elements(), k = a.values.elements();
    S* y = a.y.data<S>();
    const auto* indices = a.indices.data<std::int32_t>();
    const S* values = a.values.data<S>();
    for (std::int64_t i = 0; i < k; ++i) {
      const std::int64_t at = indices[i] - a.first;
      LOCKSTEP_CHECK(at >= 0 && at < n, "add_at: index {} of {} elements from {} on", indices[i], n, a.first);
      y[at] = convert<A, S>(convert<S, A>(y[at]) + convert<S, A>(values[i]));
    }
  });
}

}  // namespace lockstep::cpu
