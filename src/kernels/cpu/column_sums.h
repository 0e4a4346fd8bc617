// Sums over rows, column by column: the gradients of norm weights and biases.
//
// Work is split by columns, so each column's sum has one order whatever the number of threads: rows ascending within
// blocks of 64, then the blocks ascending. The blocks keep the rounding error of a long sum in fp32 small.
#pragma once
#include "kernels/cpu/rows.h"
#include "kernels/cpu/simd.h"

namespace lockstep::cpu {

// result[c] (+)= Σ_row term(row, c, load)[lane]; term returns the Vec of the columns from c on, loading with `load`.
template <class T, class G, class Term>
void column_sums(Stream& stream, G* result, std::int64_t rows, std::int64_t columns, bool accumulate, Term&& term) {
  constexpr int W = kLanes<T>;
  constexpr int kVectors = 4;  // columns of one piece of work: four vectors, a cache line or more of each row
  constexpr std::int64_t kBlock = 64;
  const std::int64_t piece = kVectors * W;
  stream.workers().each((columns + piece - 1) / piece, [&](std::int64_t item, int) {
    const std::int64_t begin = item * piece, count = std::min<std::int64_t>(piece, columns - begin);
    Vec<T> total[kVectors] = {};
    for (std::int64_t block = 0; block < rows; block += kBlock) {
      Vec<T> partial[kVectors] = {};
      for (std::int64_t row = block; row < std::min(rows, block + kBlock); ++row)
        for_vectors<T>(count, [&](std::int64_t i, auto load, auto) { partial[i / W] += term(row, begin + i, load); });
      for (int v = 0; v < kVectors; ++v) total[v] += partial[v];
    }
    for_vectors<T>(count, [&](std::int64_t i, auto load, auto store) {
      G* out = result + begin + i;
      store(out, accumulate ? load(out) + total[i / W] : total[i / W]);
    });
  });
}

}  // namespace lockstep::cpu
