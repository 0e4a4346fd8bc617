// Block by block: a block's partial sums stay in the nearest cache while every in is read once and every out written
// once, so a large number of operands costs what their memory costs. Two operands, which is what two ranks give, need
// no partial sums.
#include "kernels/tree_sum.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/rows.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/types.h"

namespace lockstep::cpu {

namespace {

constexpr std::int64_t kBlockBytes = 2048;  // of partial sums

// The type partial sums are kept in.
template <class S>
using Partial = typename std::conditional_t<std::is_integral_v<S>, TypeTag<S>, ComputeOf<S>>::Type;

// As for_vectors; integers go one by one, and the compiler makes vectors of them.
template <class S, class Body>
[[gnu::always_inline]] inline void for_items(std::int64_t n, Body&& body) {
  if constexpr (std::is_integral_v<S>) {
    for (std::int64_t i = 0; i < n; ++i)
      body(
          i, [](const S* p) { return *p; }, [](S* p, S v) { *p = v; });
  } else {
    for_vectors<Compute<S>>(n, body);
  }
}

// Two partial results made one.
template <bool Max, class V>
[[gnu::always_inline]] inline V join(V a, V b) {
  if constexpr (std::is_integral_v<V>) {
    using U = std::make_unsigned_t<V>;
    return Max ? std::max(a, b) : static_cast<V>(static_cast<U>(a) + static_cast<U>(b));
  } else if constexpr (Max) {
    return (a > b) | (a != a) ? a : b;
  } else {
    return a + b;
  }
}

template <class S, bool Max>
void block(const TreeSumArgs& args, std::int64_t begin, std::int64_t count) {
  using A = Partial<S>;
  constexpr std::int64_t kBlock = kBlockBytes / static_cast<std::int64_t>(sizeof(A));
  alignas(64) A partial[kMostPartials][kBlock];
  int height = 0;
  for (std::size_t i = 0; i < args.ins.size(); ++i) {
    const S* x = static_cast<const S*>(args.ins[i].raw()) + begin;
    int joins = args.joins[i];
    if (joins == 0) {
      A* to = partial[height++];
      for_items<S>(count, [=](std::int64_t k, auto load, auto store) { store(to + k, load(x + k)); });
      continue;
    }
    A* top = partial[height - 1];  // the first join as x is read
    for_items<S>(count, [=](std::int64_t k, auto load, auto store) {
      store(top + k, join<Max>(load(static_cast<const A*>(top) + k), load(x + k)));
    });
    while (--joins > 0) {
      const A* right = partial[--height];
      A* left = partial[height - 1];
      for_items<A>(count, [=](std::int64_t k, auto load, auto store) {
        store(left + k, join<Max>(load(static_cast<const A*>(left) + k), load(right + k)));
      });
    }
  }
  if constexpr (!std::is_integral_v<S>) {
    if (args.reduction == Reduction::mean) {
      const auto divisor = broadcast(static_cast<A>(args.ins.size()));
      A* sums = partial[0];
      for_items<A>(count, [=](std::int64_t k, auto load, auto store) {
        store(sums + k, load(static_cast<const A*>(sums) + k) / divisor);
      });
    }
  }
  const A* from = partial[0];
  alignas(64) S rounded[kBlock];  // once, however many places it goes to
  const void* result = from;
  if constexpr (!std::is_same_v<S, A>) {
    S* to = rounded;
    for_items<S>(count, [=](std::int64_t k, auto load, auto store) { store(to + k, load(from + k)); });
    result = rounded;
  }
  for (const Tensor& out : args.outs)
    std::memcpy(static_cast<S*>(out.raw()) + begin, result, static_cast<std::size_t>(count) * sizeof(S));
}

// Two ins, and one out or two: each vector goes from where it is read to where it is written, a third faster than by
// way of a block.
template <class S, bool Max, bool Mean>
void pair(const TreeSumArgs& args, std::int64_t begin, std::int64_t count) {
  const S* x = static_cast<const S*>(args.ins[0].raw()) + begin;
  const S* y = static_cast<const S*>(args.ins[1].raw()) + begin;
  S* to = static_cast<S*>(args.outs.front().raw()) + begin;
  S* also = static_cast<S*>(args.outs.back().raw()) + begin;
  const auto result = [](auto a, auto b) {
    if constexpr (Mean)
      return join<Max>(a, b) / broadcast(Partial<S>{2});
    else
      return join<Max>(a, b);
  };
  if (to == also)
    for_items<S>(count,
                 [=](std::int64_t k, auto load, auto store) { store(to + k, result(load(x + k), load(y + k))); });
  else
    for_items<S>(count, [=](std::int64_t k, auto load, auto store) {
      const auto value = result(load(x + k), load(y + k));
      store(to + k, value);
      store(also + k, value);
    });
}

// Whether it was one.
template <class S, bool Max>
bool run_pair(const TreeSumArgs& args, std::int64_t begin, std::int64_t count) {
  if (args.ins.size() != 2 || args.outs.empty() || args.outs.size() > 2) return false;
  if constexpr (!std::is_integral_v<S> && !Max) {
    if (args.reduction == Reduction::mean) {
      pair<S, Max, true>(args, begin, count);
      return true;
    }
  }
  pair<S, Max, false>(args, begin, count);
  return true;
}

template <class S, bool Max>
void range(const TreeSumArgs& args, std::int64_t begin, std::int64_t count) {
  if (run_pair<S, Max>(args, begin, count)) return;
  constexpr std::int64_t kBlock = kBlockBytes / static_cast<std::int64_t>(sizeof(Partial<S>));
  for (std::int64_t i = 0; i < count; i += kBlock) block<S, Max>(args, begin + i, std::min(kBlock, count - i));
}

template <class S>
void range(const TreeSumArgs& args, std::int64_t begin, std::int64_t count) {
  if (args.reduction == Reduction::max)
    range<S, true>(args, begin, count);
  else
    range<S, false>(args, begin, count);
}

}  // namespace

void tree_sum_range(const TreeSumArgs& args, std::int64_t begin, std::int64_t count) {
  switch (args.ins[0].dtype()) {
    case DType::i32:
      return range<std::int32_t>(args, begin, count);
    case DType::i64:
      return range<std::int64_t>(args, begin, count);
    default:
      with_float(args.ins[0].dtype(), [&](auto s) { range<typename decltype(s)::Type>(args, begin, count); });
  }
}

void tree_sum(const TreeSumArgs& args, lockstep::Stream& stream) {
  each_range(Stream::of(stream), args.ins[0].elements(),
             [&](std::int64_t begin, std::int64_t count) { tree_sum_range(args, begin, count); });
}

}  // namespace lockstep::cpu
