#include "kernels/split_cross_entropy.h"

#include <algorithm>

#include "kernels/cpu/cross_entropy_rows.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/types.h"

namespace lockstep::cpu {

namespace {

void check_target(const char* op, std::int32_t target, std::int64_t row) {
  LOCKSTEP_CHECK(target >= 0 || target == kIgnoredTarget, "{}: target {} of row {}", op, target, row);
}

// The column of a target, none (-1) where another rank has it.
struct Held {
  std::int64_t first, valid;
  std::int64_t operator()(std::int32_t target) const {
    const std::int64_t column = target - first;
    return column >= 0 && column < valid ? column : -1;
  }
};

template <class T>
struct Row {
  T top = -std::numeric_limits<T>::infinity();
  T total = 0;
  T hit = 0;
};

// What all ranks' columns give together, in rank order. A rank without any has 0·exp(-inf - top), which adds nothing;
// where no rank has any, that is NaN, and so is the row.
template <class T>
Row<T> combined(const T* statistics, std::int64_t ranks, std::int64_t stride) {
  Row<T> row;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const T high = statistics[rank * stride];
    row.top = (high > row.top || high != high) ? high : row.top;
  }
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const T* one = statistics + rank * stride;
    const Vec<T> part = exp(broadcast(one[0] - row.top));
    row.total += one[1] * part[0];
    row.hit += one[2];
  }
  return row;
}

template <class S, class D>
void run(const SplitCrossEntropyArgs& a, Stream& stream) {
  using T = Compute<S>;
  const std::int64_t count = a.logits.dim(0), width = a.logits.dim(1);
  const auto logits = rows<S>(a.logits);
  const auto dlogits = rows<D>(a.dlogits);
  const std::int32_t* targets = a.targets.data<std::int32_t>();
  const T* statistics = a.statistics.data<T>();
  T* losses = a.losses.data<T>();
  std::int32_t* likeliest = a.likeliest ? a.likeliest.data<std::int32_t>() : nullptr;
  const T scale = *a.scale.data<T>();
  const Held held{a.first, a.valid};
  each_row(stream, count, width, [&](std::int64_t row, int) {
    const std::int32_t target = targets[row];
    check_target("split_cross_entropy", target, row);
    if (target == kIgnoredTarget) {
      losses[row] = 0;
      if (dlogits) std::fill_n(dlogits[row], width, D(0.0f));
      return;
    }
    const Row<T> all = combined(statistics + row * kLossStatistics, a.statistics.dim(0), count * kLossStatistics);
    losses[row] = std::log(all.total) + (all.top - all.hit);
    if (likeliest) likeliest[row] = all.hit >= all.top;
    if (!dlogits) return;
    const S* in = logits[row];
    D* out = dlogits[row];
    const std::int64_t column = held(target);
    const T hit = column >= 0 ? load_some(in + column, 1)[0] : T(0);
    write_softmax(out, in, a.valid, all.top, scale / all.total);
    std::fill_n(out + a.valid, width - a.valid, D(0.0f));
    if (column >= 0) out[column] = target_gradient<D>(hit, all.top, all.total, scale);
  });
}

}  // namespace

void split_cross_entropy_statistics(const SplitCrossEntropyStatisticsArgs& a, lockstep::Stream& stream) {
  with_float(a.logits.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    using T = Compute<S>;
    const auto logits = rows<S>(a.logits);
    const std::int32_t* targets = a.targets.data<std::int32_t>();
    T* statistics = a.statistics.data<T>();
    const Held held{a.first, a.valid};
    each_row(Stream::of(stream), a.logits.dim(0), a.logits.dim(1), [&](std::int64_t row, int) {
      check_target("split_cross_entropy_statistics", targets[row], row);
      const S* in = logits[row];
      T* out = statistics + row * kLossStatistics;
      const std::int64_t column = held(targets[row]);
      out[0] = largest_of(in, a.valid);
      out[1] = out[0] == -std::numeric_limits<T>::infinity() ? T(0) : sum_of_exponentials(in, a.valid, out[0]);
      out[2] = column >= 0 ? load_some(in + column, 1)[0] : T(0);
    });
  });
}

void split_cross_entropy(const SplitCrossEntropyArgs& a, lockstep::Stream& stream) {
  with_float(a.logits.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    const DType d = a.dlogits ? a.dlogits.dtype() : a.logits.dtype();
    if (d == a.logits.dtype()) return run<S, S>(a, Stream::of(stream));
    if constexpr (std::is_same_v<S, float>) {
      if (d == DType::bf16) return run<float, bf16>(a, Stream::of(stream));
      if (d == DType::f16) return run<float, f16>(a, Stream::of(stream));
    }
    LOCKSTEP_CHECK(false, "split_cross_entropy: gradient {} of logits {}", name_of(d), name_of(a.logits.dtype()));
  });
}

}  // namespace lockstep::cpu
