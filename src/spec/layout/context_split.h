// How the tokens of a sample are split over the ranks of a context-parallel group, as one of them sees it.
//
// There are ring · heads ranks. Tokens are split into `ring` blocks, whose keys and values travel from block to block.
// The `heads` ranks of a block are neighbours and have equal runs of its tokens; for attention each exchanges them for
// all tokens of the block and some of the heads. So a block is what attention works on.
//
// In plain order, block m is the m-th part of the sample, and under the causal mask the last one has most to do. In
// zig-zag order a block is two chunks, one from the front and its mirror image from the back: the more work one has,
// the less the other has. A group of one has all tokens, in their order.
#pragma once
#include <cstdint>
#include <numeric>

namespace lockstep {

struct ContextSplit {
  std::int64_t rank = 0, ring = 1, heads = 1;
  bool zigzag = false;

  std::int64_t size() const { return ring * heads; }
  std::int64_t ring_rank() const { return rank / heads; }
  std::int64_t heads_rank() const { return rank % heads; }
  std::int64_t chunks() const { return zigzag && ring > 1 ? 2 : 1; }  // of a block

  // The length of a sample is a multiple of this.
  std::int64_t unit() const { return ring * std::lcm(chunks(), heads); }
  // Of a sample of T tokens: those of one rank, of a block, of a chunk.
  std::int64_t tokens(std::int64_t T) const { return T / size(); }
  std::int64_t block(std::int64_t T) const { return T / ring; }
  std::int64_t chunk(std::int64_t T) const { return T / (ring * chunks()); }
  // Where in the sample a chunk of a block begins, and where this rank's token t is.
  std::int64_t chunk_begins(std::int64_t T, std::int64_t block, std::int64_t c) const {
    return (c == 0 ? block : 2 * ring - 1 - block) * chunk(T);
  }
  std::int64_t position(std::int64_t T, std::int64_t t) const {
    const std::int64_t in_block = heads_rank() * tokens(T) + t;
    return chunk_begins(T, ring_rank(), in_block / chunk(T)) + in_block % chunk(T);
  }
};

}  // namespace lockstep
