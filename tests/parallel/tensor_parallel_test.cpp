// Tensor parallelism: a layer of two products, split over ranks, gives what the whole layer gives, forward and
// backward.
#include "parallel/tensor_parallel.h"

#include <gtest/gtest.h>

#include "comm/threads/run_ranks.h"
#include "parallel/plain_rows.h"

namespace lockstep::tests {
namespace {

TEST(TensorParallel, WithoutSequenceParallelismOnlySums) {
  run_ranks(3, [&](std::unique_ptr<Communicator> group) {
    const TensorParallel tensor(*group, {.split = {.rank = group->rank(), .size = 3, .pieces = 4}});
    std::vector<double> whole(24);
    tensor.sum(rows(whole, 3), rows(whole, 3), [&](std::int64_t first, std::int64_t count) {
      for (std::int64_t i = first * 3; i < (first + count) * 3; ++i) whole[i] = group->rank() + static_cast<double>(i);
    });
    for (std::int64_t i = 0; i < 24; ++i) ASSERT_EQ(whole[i], 3.0 + 3.0 * static_cast<double>(i));
    EXPECT_TRUE(tensor.start_gather(rows(whole, 3), rows(whole, 3)).empty());
  });
}

constexpr std::int64_t kRows = 17, kC = 4, kF = 30;  // y = (x W1ᵀ) W2ᵀ, of width C → F → C

double x(std::int64_t n, std::int64_t c) { return static_cast<double>((n * 5 + c * 3) % 7 - 3); }
double w1(std::int64_t f, std::int64_t c) { return static_cast<double>((f * 2 + c) % 5 - 2); }
double w2(std::int64_t c, std::int64_t f) { return static_cast<double>((f + 3 * c) % 5 - 2); }

// Σ_f in [begin, end) of (x W1ᵀ)[n, f] · W2[c, f]; whole numbers, so exact in any order.
double layer(std::int64_t n, std::int64_t c, std::int64_t begin, std::int64_t end) {
  double sum = 0;
  for (std::int64_t f = begin; f < end; ++f)
    for (std::int64_t k = 0; k < kC; ++k) sum += x(n, k) * w1(f, k) * w2(c, f);
  return sum;
}
// The gradient of the inputs where that of the outputs is x: Σ_f Σ_k x[n, k] · W2[k, f] · W1[f, c].
double layer_backward(std::int64_t n, std::int64_t c, std::int64_t begin, std::int64_t end) {
  double sum = 0;
  for (std::int64_t f = begin; f < end; ++f)
    for (std::int64_t k = 0; k < kC; ++k) sum += x(n, k) * w2(k, f) * w1(f, c);
  return sum;
}

TEST(TensorParallel, GivesTheOutputsAndGradientsOfTheWholeLayer) {
  for (const int ranks : {1, 2, 3, 5})
    for (const bool sequence : {false, true})
      for (const bool overlap : {false, true})
        run_ranks(ranks, [&](std::unique_ptr<Communicator> group) {
          const TensorSplit split{.rank = group->rank(), .size = ranks, .sequence = sequence && ranks > 1, .pieces = 4};
          const TensorParallel tensor(*group, {.split = split, .overlap = overlap});
          const Part part = split.part(kF);
          std::vector<std::int64_t> mine;  // rows of this rank
          for (std::int64_t p = 0; p < split.pieces_of(kRows); ++p)
            for (std::int64_t i = 0; i < split.piece(kRows, p).own_count; ++i)
              mine.push_back(split.piece(kRows, p).mine + i);
          ASSERT_EQ(std::ssize(mine), split.own_rows(kRows));

          std::vector<double> own(mine.size() * kC), whole(kRows * kC, -1e9), sums(kRows * kC), out(own.size(), -1e9);
          const bool apart = split.sequence;
          const auto at = [&](std::int64_t n, std::int64_t c) { return static_cast<std::size_t>(n * kC + c); };
          // Forward and backward have the same shape: rows enter, each rank makes its part of all of them, sums leave.
          for (const auto& f : {layer, layer_backward}) {
            for (std::size_t i = 0; i < mine.size(); ++i)
              for (std::int64_t c = 0; c < kC; ++c) own[i * kC + c] = x(mine[i], c);
            std::vector<int> gathered(kRows);
            tensor.gather(rows(apart ? whole : own, kC), rows(own, kC), [&](std::int64_t first, std::int64_t count) {
              for (std::int64_t n = first; n < first + count; ++n) {
                ++gathered[static_cast<std::size_t>(n)];
                for (std::int64_t c = 0; c < kC; ++c) ASSERT_EQ((apart ? whole : own)[at(n, c)], x(n, c));
              }
            });
            ASSERT_EQ(gathered, std::vector<int>(kRows, 1)) << "every row once";
            tensor.sum(rows(apart ? out : sums, kC), rows(sums, kC), [&](std::int64_t first, std::int64_t count) {
              for (std::int64_t n = first; n < first + count; ++n)
                for (std::int64_t c = 0; c < kC; ++c) sums[at(n, c)] = f(n, c, part.first, part.first + part.count);
            });
            for (std::size_t i = 0; i < mine.size(); ++i)
              for (std::int64_t c = 0; c < kC; ++c)
                ASSERT_EQ((apart ? out : sums)[i * kC + static_cast<std::size_t>(c)], f(mine[i], c, 0, kF))
                    << ranks << " ranks, row " << mine[i];
          }
        });
}

}  // namespace
}  // namespace lockstep::tests
