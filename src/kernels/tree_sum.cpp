#include "kernels/tree_sum.h"

#include <algorithm>
#include <bit>
#include <string>

#include "kernels/operands.h"

namespace lockstep {

std::vector<std::uint8_t> balanced_joins(int operands) {
  LOCKSTEP_CHECK(operands >= 1, "a sum of {} operands", operands);
  // As a binary counter carries: after 2^k operands the partial sums of equal size have met. The last joins what is
  // left, from the smallest to the largest.
  std::vector<std::uint8_t> joins(static_cast<std::size_t>(operands));
  int height = 0;
  for (unsigned i = 0; i < joins.size(); ++i) {
    ++height;
    const int some = i + 1 < joins.size() ? std::countr_zero(i + 1) : height - 1;
    joins[i] = static_cast<std::uint8_t>(some);
    height -= some;
  }
  return joins;
}

void check_joins(const char* op, std::span<const std::uint8_t> joins, std::size_t operands) {
  LOCKSTEP_CHECK(joins.size() == operands, "{}: {} joins for {} ins", op, joins.size(), operands);
  int height = 0, highest = 0;
  for (const int some : joins) {
    highest = std::max(highest, ++height);
    height -= some;
    LOCKSTEP_CHECK(height >= 1, "{}: the joins take more partial sums than there are", op);
  }
  LOCKSTEP_CHECK(height == 1, "{}: the joins leave {} partial sums", op, height);
  LOCKSTEP_CHECK(highest <= kMostPartials, "{}: {} partial sums at once, at most {}", op, highest, kMostPartials);
}

void tree_sum(const TreeSumArgs& a, Stream& stream) {
  LOCKSTEP_CHECK(!a.ins.empty() && a.ins.size() <= kMostSummands && a.outs.size() <= kMostSummands,
                 "tree_sum: {} ins and {} outs, at most {}", a.ins.size(), a.outs.size(), kMostSummands);
  check_joins("tree_sum", a.joins, a.ins.size());
  const ConstTensor& first = a.ins[0];
  Operands operands("tree_sum", stream);
  for (std::size_t i = 0; i < a.ins.size(); ++i)
    operands.have_flat(fmt::format("ins[{}]", i).c_str(), a.ins[i], first.shape(), first.dtype());
  for (std::size_t i = 0; i < a.outs.size(); ++i)
    operands.have_flat(fmt::format("outs[{}]", i).c_str(), a.outs[i], first.shape(), first.dtype());
  LOCKSTEP_CHECK(a.reduction != Reduction::mean || is_float(first.dtype()), "tree_sum: the mean of {} is no {}",
                 name_of(first.dtype()), name_of(first.dtype()));
  dispatch(cpu::tree_sum, cuda::tree_sum, meta::tree_sum, a, stream);
}

}  // namespace lockstep
