// Attention to a cache of keys and values whose rows are split over ranks (spec/layout/cache_split.h), for generating.
//
// All ranks have the same queries. Each attends to the rows that it has; one that has none yet brings an lse of -inf,
// which counts for nothing. The results are gathered, and every rank joins all of them in the order of ranks, as
// parallel/ring_attention.h says: so all have the same bits, and whatever follows from them is the same too.
//
// Parts are exchanged in the type that attention gives them in: it has rounded them, and a wider type would send more
// and know no more. They are joined in the accumulator type and rounded once. A rank sends its B·T·H·D elements and
// B·H·T log-sum-exps to the others, however long the cache is.
#pragma once
#include "comm/communicator.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

struct SplitCacheAttentionArgs {
  Tensor o, lse;     // as attention has them: (B, T, H, D), (B, H, T)
  ConstTensor q;     // (B, T, H, D)
  ConstTensor k, v;  // (B, S, K, D): the rows that are here; none where there are none
  bool own;          // the last T of these are the queries' own, under the causal mask; else all queries see all rows
  double scale;
  Tensor parts, part_lses;  // room for all ranks': (ranks, B·T·H·D), (ranks, B·H·T), as o and lse
  Tensor sums = {};         // in 16 bits: room for o in the accumulator type
};

void split_cache_attention(const SplitCacheAttentionArgs& args, Communicator& ranks, Stream& stream);

}  // namespace lockstep
