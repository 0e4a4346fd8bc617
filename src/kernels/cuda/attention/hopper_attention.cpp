#include "kernels/cuda/attention/hopper_attention.h"

#include <algorithm>

namespace lockstep::cuda {

const char* why_not_hopper(const AttentionSizes& s) {
  if (s.dtype != DType::bf16) return "it is for bf16";
  if (s.dropout) return "it has no dropout";
  if (s.D != 64 && s.D != 128) return "it is for head widths of 64 and 128";
  if (s.T < kHopperTokens || s.S < kHopperTokens) return "there are too few tokens to fill a tile";
  if (s.B == 0 || s.H == 0) return "there is nothing to do";
  // Tiles and tokens are counted in 32 bits.
  if (s.B * s.H > (std::int64_t{1} << 31) / round_up(std::max(s.T, s.S), kHopperKeys))
    return "it is for fewer than 2^31 rows of queries, and of keys";
  return nullptr;
}

HopperReserve hopper_reserve(const AttentionSizes& s) {
  const std::int64_t heads = s.B * s.H, tiles = ceil_div(s.T, hopper_queries(s.D));
  const std::int64_t rows = heads * tiles * hopper_queries(s.D);
  return {.dq = round_up(4 * rows * s.D, kAlignment),
          .statistics = 2 * round_up(4 * rows, kAlignment),
          .turns = round_up(4 * (2 * heads * tiles + 1), kAlignment),
          .first = s.documents ? round_up(4 * s.B * tiles * hopper_queries(s.D), kAlignment) : 0};
}

}  // namespace lockstep::cuda
