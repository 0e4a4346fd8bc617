#include "comm/sum_order.h"

#include <bit>
#include <numeric>

namespace lockstep {

namespace {

SumOrder balanced_from(int first, int ranks) {
  SumOrder order{std::vector<int>(static_cast<std::size_t>(ranks)), balanced_joins(ranks)};
  for (int i = 0; i < ranks; ++i) order.ranks[static_cast<std::size_t>(i)] = (first + i) % ranks;
  return order;
}

SumOrder chain_to(int last, int ranks) {
  SumOrder order{{}, std::vector<std::uint8_t>(static_cast<std::size_t>(ranks), 1)};
  for (int i = 1; i <= ranks; ++i) order.ranks.push_back((last + i) % ranks);
  order.joins[0] = 0;
  return order;
}

SumOrder halving(int ranks) {
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
  const int bits = std::bit_width(static_cast<unsigned>(power)) - 1;
  const std::vector<std::uint8_t> joins = balanced_joins(power);
  SumOrder order;
  for (int i = 0; i < power; ++i) {
    int rank = 0;  // the bits of i turned round: neighbours in the tree are the ranks furthest apart
    for (int bit = 0; bit < bits; ++bit) rank |= (i >> bit & 1) << (bits - 1 - bit);
    const bool folded = rank + power < ranks;
    order.ranks.push_back(rank);
    order.joins.push_back(folded ? 0 : joins[static_cast<std::size_t>(i)]);
    if (!folded) continue;
    order.ranks.push_back(rank + power);
    order.joins.push_back(static_cast<std::uint8_t>(joins[static_cast<std::size_t>(i)] + 1));
  }
  return order;
}

}  // namespace

SumOrder sum_order(CommOp op, Algorithm algorithm, int ranks, int piece) {
  switch (algorithm) {
    case Algorithm::ring:
      return chain_to(piece, ranks);
    case Algorithm::tree:
      return op == CommOp::reduce ? balanced_from(piece, ranks) : halving(ranks);
    default:
      return balanced_from(0, ranks);
  }
}

}  // namespace lockstep
