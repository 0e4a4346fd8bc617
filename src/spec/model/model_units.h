// The units of a model, in the order of the forward pass: the embedding, the blocks and the head.
//
// A block is one unit, or two: its attention and its feed-forward part, each with its norm, so that each is gathered,
// released, reduced, updated and scheduled by itself (`wrap = "halves"`, spec/layout/wrap_rule.h). Which of the two is
// decided once for a run; all else that speaks of units does not ask.
#pragma once
#include <cstdint>

namespace lockstep {

struct ModelUnits {
  std::int64_t layers = 0;  // blocks
  bool halves = false;

  int per_block() const { return halves ? 2 : 1; }
  int count() const { return static_cast<int>(layers) * per_block() + 2; }
  int head() const { return count() - 1; }
  bool is_of_block(int unit) const { return unit > 0 && unit < head(); }
  std::int64_t block_of(int unit) const { return (unit - 1) / per_block(); }
  // The first unit of the n-th of the embedding (0), the blocks, and the head: where a chunk of a pipeline may begin.
  int first_of(int part) const { return part == 0 ? 0 : 1 + (part - 1) * per_block(); }
};

}  // namespace lockstep
