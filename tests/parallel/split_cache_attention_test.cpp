// Attention to keys and values that ranks have between them: what attention to all of them gives, on every rank.
#include "parallel/split_cache_attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "comm/ranks.h"
#include "kernels/attention.h"
#include "tensor/cpu/stream.h"

namespace lockstep::tests {
namespace {

constexpr std::int64_t kT = 3, kH = 4, kK = 2, kD = 20;
constexpr double kScale = 0.25;
const Shape kQueries{1, kT, kH, kD}, kStatistics{1, kH, kT};

double cache_element(std::int64_t i, double seed) {
  return 2 * std::sin(1.7 * static_cast<double>(i * i % 1009) + seed);
}

// What each rank had and what it got.
struct SplitCacheResult {
  std::vector<double> part, part_lse, o, lse;
};

std::vector<double> values(const Row& row) {
  std::vector<double> all;
  for (std::int64_t i = 0; i < row.elements(); ++i) all.push_back(row[i]);
  return all;
}

// Rank r has rows[r] rows; `keeper` has those of the queries' tokens behind them.
std::vector<SplitCacheResult> attend_split_cache(DType dtype, const std::vector<std::int64_t>& rows, int keeper) {
  const int size = static_cast<int>(rows.size());
  const DType sums = accumulator_of(dtype);
  std::vector<SplitCacheResult> found(rows.size());
  each_rank(size, [&](Communicator& ranks) {
    Ledger ledger;
    const auto memory = make_memory(Device::cpu, ledger);
    cpu::Stream stream(*memory, 1);
    const int r = ranks.rank();
    const Shape keys{1, rows[r], kK, kD};
    Row q(dtype, kQueries.elements(), [](std::int64_t i) { return cache_element(i, 1); });
    Row k(dtype, keys.elements(), [&](std::int64_t i) { return cache_element(i, 2 + r); });
    Row v(dtype, keys.elements(), [&](std::int64_t i) { return cache_element(i, 20 + r); });
    Row o(dtype, kQueries.elements()), lse(sums, kStatistics.elements());
    Row parts(dtype, size * o.elements()), part_lses(sums, size * lse.elements()), in_sums(sums, o.elements());
    const auto as = [](Row& row, const Shape& shape) { return static_cast<Tensor>(row).reshape(shape); };
    split_cache_attention({.o = as(o, kQueries),
                           .lse = as(lse, kStatistics),
                           .q = as(q, kQueries),
                           .k = rows[r] > 0 ? as(k, keys) : Tensor{},
                           .v = rows[r] > 0 ? as(v, keys) : Tensor{},
                           .own = r == keeper,
                           .scale = kScale,
                           .parts = as(parts, {size, o.elements()}),
                           .part_lses = as(part_lses, {size, lse.elements()}),
                           .sums = dtype == sums ? Tensor{} : as(in_sums, kQueries)},
                          ranks, stream);
    found[r] = {.part = {}, .part_lse = {}, .o = values(o), .lse = values(lse)};
    if (rows[r] == 0) return;
    Row part(dtype, o.elements()), part_lse(sums, lse.elements());
    lockstep::attention_forward({.o = as(part, kQueries),
                                 .lse = as(part_lse, kStatistics),
                                 .q = as(q, kQueries),
                                 .k = as(k, keys),
                                 .v = as(v, keys),
                                 .scale = kScale,
                                 .causal = r == keeper},
                                stream);
    found[r].part = values(part);
    found[r].part_lse = values(part_lse);
  });
  return found;
}

// With ranks that have no row, fewer rows than there are queries, and many; the joint result rounded once.
TEST(SplitCacheAttention, JoinsWhatRanksHaveFoundAndRoundsItOnce) {
  struct Case {
    std::vector<std::int64_t> rows;
    int keeper;
  };
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (const auto& [rows, keeper] :
         std::vector<Case>{{{3, 0}, 0}, {{0, 0, 3}, 2}, {{2, 9, 0}, 1}, {{40, 41, 42, 43, 44, 45, 46}, 3}}) {
      const std::vector<SplitCacheResult> found = attend_split_cache(dtype, rows, keeper);
      for (const SplitCacheResult& other : found) {
        EXPECT_EQ(other.o, found[0].o);
        EXPECT_EQ(other.lse, found[0].lse);
      }
      const double sum_error = 64 * unit_roundoff(accumulator_of(dtype));
      for (std::int64_t t = 0; t < kT; ++t)
        for (std::int64_t h = 0; h < kH; ++h) {
          double total = 0;
          for (const SplitCacheResult& part : found)
            if (!part.part.empty()) total += std::exp(part.part_lse[h * kT + t]);
          EXPECT_NEAR(found[0].lse[h * kT + t], std::log(total), sum_error * (1 + std::abs(std::log(total))));
          for (std::int64_t d = 0; d < kD; ++d) {
            const std::int64_t i = (t * kH + h) * kD + d;
            double want = 0, size = 0;
            for (const SplitCacheResult& part : found) {
              if (part.part.empty()) continue;
              const double term = part.part[i] * std::exp(part.part_lse[h * kT + t]) / total;
              want += term;
              size += std::abs(term);
            }
            EXPECT_NEAR(found[0].o[i], want, unit_roundoff(dtype) * std::abs(want) + sum_error * size)
                << name_of(dtype) << ", element " << i << " of " << rows.size() << " ranks";
          }
        }
    }
}

}  // namespace
}  // namespace lockstep::tests
