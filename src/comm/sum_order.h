// In which order an algorithm adds up the ranks' elements: a binary tree with ranks as leaves (kernels/tree_sum.h).
//
//   canonical, native  the balanced tree of ranks 0 … N-1, the same for every element. So the sum does not depend on
//                      where an element lies or how a message was cut, and a group of 2^k consecutive ranks, beginning
//                      at a multiple of 2^k, may be summed first without changing a bit.
//   ring               the piece that ends on rank p goes round: ((x(p+1) + x(p+2)) + …) + x(p). Where an element lies
//                      decides its order, so another cut gives other bits.
//   tree               recursive halving: with P the largest power of two within N, rank r >= P first adds to r - P;
//                      then ranks P/2 apart add, P/4 apart, … A reduction to a root is a binomial tree: the balanced
//                      one over root, root + 1, …
//
// Partial sums are kept wide and rounded once, as the canonical sum's are: where ranks share memory nothing is sent
// that a narrow type would have to hold.
#pragma once
#include <cstdint>
#include <vector>

#include "comm/message.h"

namespace lockstep {

struct SumOrder {
  std::vector<int> ranks;           // leaves, from left to right
  std::vector<std::uint8_t> joins;  // as kernels/tree_sum.h has them
};

// Of the piece that ends on rank `piece`; of a reduce, the root.
SumOrder sum_order(CommOp op, Algorithm algorithm, int ranks, int piece);

}  // namespace lockstep
