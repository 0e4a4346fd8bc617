// How the ranks of a context-parallel group split the tokens of a sample, as one of them sees it.
//
// There are ring · heads ranks. A segment is a range of a sample's tokens. The sample is split into `ring` shares of
// one or two segments, and the keys and values of the shares travel around the ring. The `heads` ranks of a share are
// neighbours and hold equal runs of its tokens; for attention each takes all tokens of the share and some of the heads.
// So a share is what attention works on.
//
// Plain order: share m is one segment, the m-th of the sample, and under the causal mask the last one has most to do.
// Zig-zag order: the sample is 2·ring segments, and share m is segments m and 2·ring − 1 − m. Whatever one of the two
// has to do more than another share's, its mate has to do less. A group of one has all tokens, in their order.
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
  std::int64_t segments() const { return zigzag && ring > 1 ? 2 : 1; }  // of a share

  // The tokens of a sample are a multiple of this.
  std::int64_t multiple() const { return ring * std::lcm(segments(), heads); }
  // Of a sample of T tokens: those of one rank, of a share, of a segment.
  std::int64_t tokens(std::int64_t T) const { return T / size(); }
  std::int64_t share(std::int64_t T) const { return T / ring; }
  std::int64_t segment(std::int64_t T) const { return T / (ring * segments()); }
  // Where in the sample a segment of a share begins, and where this rank's token t is.
  std::int64_t segment_begins(std::int64_t T, std::int64_t share, std::int64_t c) const {
    return (c == 0 ? share : 2 * ring - 1 - share) * segment(T);
  }
  std::int64_t position(std::int64_t T, std::int64_t t) const {
    return share_position(T, heads_rank() * tokens(T) + t);
  }
  // And token `in_share` of its share.
  std::int64_t share_position(std::int64_t T, std::int64_t in_share) const {
    return segment_begins(T, ring_rank(), in_share / segment(T)) + in_share % segment(T);
  }
};

}  // namespace lockstep
