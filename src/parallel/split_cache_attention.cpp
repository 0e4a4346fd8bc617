#include "parallel/split_cache_attention.h"

#include <limits>

#include "kernels/attention.h"
#include "kernels/attention_merge.h"
#include "kernels/elementwise.h"
#include "kernels/heads.h"

namespace lockstep {

void split_cache_attention(const SplitCacheAttentionArgs& a, Communicator& ranks, Stream& stream) {
  const auto part = [&](int rank) { return a.parts.slice(0, rank, 1).reshape(a.o.shape()); };
  const auto part_lse = [&](int rank) { return a.part_lses.slice(0, rank, 1).reshape(a.lse.shape()); };
  const int here = ranks.rank();
  if (a.k)
    attention_forward(
        {.o = part(here), .lse = part_lse(here), .q = a.q, .k = a.k, .v = a.v, .scale = a.scale, .causal = a.own},
        stream);
  else
    fill({.y = part_lse(here), .value = -std::numeric_limits<double>::infinity()}, stream);

  const Communicator::Started outputs = ranks.all_gather(a.parts, part(here));
  const Communicator::Started statistics = ranks.all_gather(a.part_lses, part_lse(here));
  outputs->wait();
  statistics->wait();

  const Tensor& to = a.sums ? a.sums : a.o;
  for (int rank = 0; rank < ranks.size(); ++rank)
    attention_merge({.o = to, .lse = a.lse, .part = part(rank), .part_lse = part_lse(rank), .first = rank == 0},
                    stream);
  if (a.sums) copy_heads({.y = a.o, .x = a.sums}, stream);
}

}  // namespace lockstep
