#include "parallel/context_parallel.h"

#include "comm/single_rank.h"

namespace lockstep {

namespace {

// None: all ranks.
std::unique_ptr<Communicator> group(Communicator& ranks, std::int64_t size, const char* name,
                                    const std::function<int(int)>& color) {
  if (size == ranks.size()) return nullptr;
  if (size == 1) return std::make_unique<SingleRank>(ranks.device());
  return ranks.split([&](int r) { return Place{.color = color(r), .key = r}; }, name);
}

RingAttention::Sizes sizes_here(RingAttention::Sizes sizes, const HeadSplit& own) {
  sizes.heads = own.queries.each;
  sizes.keys = own.keys.each;
  return sizes;
}

// What is exchanged at most: queries, keys and values of a share.
std::int64_t exchanged(const ContextSplit& split, const RingAttention::Sizes& here) {
  return here.B * split.share(here.T) * (here.heads + 2 * here.keys) * here.width;
}

}  // namespace

ContextParallel::ContextParallel(Communicator& ranks, const Options& o, Memory& memory)
    : own_(o.sizes.heads, o.sizes.keys, {.rank = o.split.heads_rank(), .size = o.split.heads}),
      own_heads_(
          group(ranks, o.split.heads, "cp heads", [n = o.split.heads](int r) { return static_cast<int>(r / n); })),
      own_ring_(group(ranks, o.split.ring, "cp ring", [n = o.split.heads](int r) { return static_cast<int>(r % n); })),
      heads_(own_heads_ ? *own_heads_ : ranks, exchanged(o.split, sizes_here(o.sizes, own_)), o.sizes.dtype, memory),
      ring_(own_ring_ ? *own_ring_ : ranks, o.split, o.overlap, sizes_here(o.sizes, own_), memory) {}

}  // namespace lockstep
