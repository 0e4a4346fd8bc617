#include "kernels/split_cross_entropy.h"

#include <limits>

#include "support/cases/cross_entropy_cases.h"
#include "support/reference_ops.h"

namespace lockstep::tests {

namespace {
using Tensors = std::span<const Tensor>;
using Hosts = std::span<HostTensor>;

struct Size {
  std::int64_t n, v, padding, first;
};

// The columns of a call: of whatever width its logits have, less the padding.
template <class Logits>
reference::SplitColumns columns_of(const Size& s, const Logits& logits) {
  return {.first = s.first, .valid = logits.dim(1) - s.padding};
}

// Padding holds NaN.
Recipe logits_of(const Size& s) {
  return [s, fill = normal(3)](std::uint64_t seed, std::int64_t i) {
    return i % s.v < s.v - s.padding ? fill(seed, i) : std::numeric_limits<double>::quiet_NaN();
  };
}

// Of a vocabulary that begins before these columns and ends behind them.
Recipe targets_of(const Size& s) { return targets(s.first + s.v - s.padding + 5, 3, kIgnoredTarget); }

std::string label_of(const Size& s, bool strided) {
  return label({s.n, s.v}) + "_padding" + std::to_string(s.padding) + "_from" + std::to_string(s.first) +
         (strided ? "_strided" : "");
}

KernelCase look(DType dtype, const Size& s, bool strided) {
  KernelCase made{.op = "split_cross_entropy_statistics", .shape = label_of(s, strided), .dtype = dtype};
  made.operands = {{"statistics", {s.n, kLossStatistics}, accumulator_of(dtype), Role::out},
                   {"logits", {s.n, s.v}, dtype, Role::in, logits_of(s), row_gap(2, strided)},
                   {"targets", {s.n}, DType::i32, Role::in, targets_of(s)}};
  made.run = [s](Tensors t, Stream& stream) {
    const auto [first, valid] = columns_of(s, t[1]);
    split_cross_entropy_statistics(
        {.statistics = t[0], .logits = t[1], .targets = t[2], .first = first, .valid = valid}, stream);
  };
  made.reference = [s](Hosts t) { reference::split_cross_entropy_statistics(t[0], t[1], t[2], columns_of(s, t[1])); };
  return made;
}

constexpr std::int64_t kRanks = 4;

// The second rank's statistics are those of the logits at hand. The others hold targets that it does not, and one of
// them has nothing but padding.
void make_statistics(HostTensor& statistics, const HostTensor& logits, const HostTensor& targets,
                     const reference::SplitColumns& columns) {
  const std::int64_t n = logits.dim(0);
  HostTensor mine("statistics", {n, kLossStatistics}, statistics.dtype);
  reference::split_cross_entropy_statistics(mine, logits, targets, columns);
  for (std::int64_t rank = 0; rank < kRanks; ++rank)
    for (std::int64_t row = 0; row < n; ++row) {
      double* one = statistics.value.data() + (rank * n + row) * kLossStatistics;
      const double target = targets[row], first = static_cast<double>(columns.first);
      one[1] = 1 + std::abs(one[1]);
      one[2] = rank == 0 && target >= 0 && target < first ? one[0] - 1 : 0;
      if (rank == 1) std::copy_n(mine.value.begin() + row * kLossStatistics, kLossStatistics, one);
      if (rank == 2) one[0] = -std::numeric_limits<double>::infinity(), one[1] = 0;
      if (rank == 3 && target >= first + static_cast<double>(columns.valid)) one[2] = one[0] - 2;
    }
}

// Operands: losses, logits, targets, scale, statistics, dlogits.
KernelCase make_split_cross_entropy(DType dtype, const Size& s, const CrossEntropyKind& kind) {
  const auto gaps = row_gap(2, kind.strided);
  const DType wide = accumulator_of(dtype);
  KernelCase made{.op = "split_cross_entropy", .shape = label_of(s, kind.strided), .dtype = dtype};
  made.shape += std::string(kind.gradient ? "" : "_loss_only") + (kind.in_place ? "_in_place" : "") +
                (kind.to == dtype ? "" : "_to_" + std::string(name_of(kind.to)));
  made.operands = {{"losses", {s.n}, wide, Role::out},
                   {"logits", {s.n, s.v}, dtype, kind.in_place ? Role::inout : Role::in, logits_of(s), gaps},
                   {"targets", {s.n}, DType::i32, Role::in, targets_of(s)},
                   loss_scale(dtype, kind),
                   {"statistics", {kRanks, s.n, kLossStatistics}, wide, Role::in, normal(3)}};
  const bool own = kind.gradient && !kind.in_place;
  if (own) made.operands.push_back({"dlogits", {s.n, s.v}, kind.to, Role::out, normal(), gaps});
  const int dlogits = own ? 5 : 1;
  made.plain = !kind.in_place;
  made.prepare = [s](Hosts t) { make_statistics(t[4], t[1], t[2], columns_of(s, t[1])); };
  made.run = [=](Tensors t, Stream& stream) {
    const auto [first, valid] = columns_of(s, t[1]);
    split_cross_entropy({.losses = t[0],
                         .dlogits = kind.gradient ? t[dlogits] : Tensor(),
                         .logits = t[1],
                         .targets = t[2],
                         .statistics = t[4],
                         .scale = t[3],
                         .first = first,
                         .valid = valid},
                        stream);
  };
  made.reference = [=](Hosts t) {
    reference::split_cross_entropy(t[0], kind.gradient ? &t[dlogits] : nullptr, t[1], t[2], t[4], t[3][0],
                                   columns_of(s, t[1]));
  };
  return made;
}
}  // namespace

Cases split_cross_entropy_cases(DType dtype) {
  Cases cases;
  for (const Size& size : {Size{1, 1, 0, 0},
                           {7, 13, 1, 4},
                           {5, 257, 0, 257},
                           {3, 12568, 3, 12568},
                           {33, 1000, 9, 0},
                           {130, 31, 0, 62},
                           {5, 16, 16, 48}})  // all of it padding
    for (const bool strided : {false, true}) {
      cases.push_back(look(dtype, size, strided));
      cases.push_back(make_split_cross_entropy(dtype, size, {.strided = strided, .to = dtype}));
      cases.push_back(make_split_cross_entropy(dtype, size, {.gradient = false, .strided = strided, .to = dtype}));
      cases.push_back(make_split_cross_entropy(dtype, size, {.in_place = true, .strided = strided, .to = dtype}));
      if (dtype == DType::f32)
        for (const DType to : {DType::bf16, DType::f16})
          cases.push_back(make_split_cross_entropy(dtype, size, {.strided = strided, .to = to}));
    }
  return cases;
}

}  // namespace lockstep::tests
