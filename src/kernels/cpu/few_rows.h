// Which products are of few rows, and read B in place (few_rows_product.h): a rule of shapes alone.
//
// Measured (bench/results/2026-11-19-generation.md): up to 8 rows are multiplied while B goes by once, faster than
// packing it at every size; up to 16 in two rounds, the second of which finds a piece of B in L2, where B came from
// beyond it.
#pragma once
#include <cstdint>

#include "base/integers.h"
#include "kernels/matmul.h"
#include "tensor/cpu/stream.h"
#include "tensor/fp8.h"

namespace lockstep::cpu {

inline bool is_of_few_rows(const MatmulArgs& a) {
  constexpr std::int64_t kRows = 8, kRowsOfLarge = 16, kLarge = 2 << 20;  // the last in bytes
  if (a.transpose_a || is_fp8(a.b.dtype())) return false;
  const std::int64_t M = a.c.dim(0), N = a.c.dim(1), K = a.a.dim(1);
  const std::int64_t most = N * K * size_of(a.b.dtype()) > kLarge ? kRowsOfLarge : kRows;
  const bool rows_fit = round_up(M, kRows) * K * size_of(accumulator_of(a.b.dtype())) <= kScratchBytes / 2;
  return M >= 1 && M <= most && N >= 16 && K >= 1 && rows_fit;
}

}  // namespace lockstep::cpu
