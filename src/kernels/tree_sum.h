// The sum of many operands in one given order, written to many places: what a reduction over ranks does to each piece.
//
// Each element of every out is the sum (or the mean, or the largest) of that element of all ins, combined as `joins`
// says: the ins are taken one after the other onto a stack of partial results, and after in i the two topmost are
// joined joins[i] times, the older one on the left. So any binary tree over the ins is a list of small numbers, and the
// order of sums is data that every device follows to the same bits. balanced_joins gives the canonical tree:
//
//   sum(lo, hi) = sum(lo, mid) + sum(mid, hi), mid = lo + the largest power of two below hi - lo
//
// in which a run of 2^k operands that begins at a multiple of 2^k is a subtree: summed first, by itself, it changes no
// bit of the whole. That is why groups of a power of two may reduce in two steps.
//
// Operands: 1 to kMostSummands ins and up to as many outs, contiguous, of one shape and one type. An out may be one of
// the ins; otherwise they do not overlap. Partial sums are kept in fp64 for fp64, in fp32 for fp32 and the 16-bit
// types, and rounded once at the end. A mean divides the sum by the number of ins before that rounding. Integers are
// exact, wrap around as two's complement does, and have no mean. A NaN anywhere makes the largest a NaN.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

enum class Reduction : std::uint8_t { sum, mean, max };

inline constexpr int kMostSummands = 1024;
inline constexpr int kMostPartials = 12;  // on the stack at once: a balanced tree of that many has 11

struct TreeSumArgs {
  std::span<const Tensor> outs;
  std::span<const ConstTensor> ins;
  std::span<const std::uint8_t> joins;  // one for each of ins
  Reduction reduction = Reduction::sum;
};

// The canonical tree over this many operands.
std::vector<std::uint8_t> balanced_joins(int operands);
// ProgramError unless they make one sum of that many operands.
void check_joins(const char* op, std::span<const std::uint8_t> joins, std::size_t operands);

using TreeSum = void(const TreeSumArgs&, Stream&);
TreeSum tree_sum;
namespace cpu {
TreeSum tree_sum;
// Elements [begin, begin + count) alone, in the calling thread: for ranks that share the work of one reduction between
// whichever of them wait. Nothing is checked.
void tree_sum_range(const TreeSumArgs&, std::int64_t begin, std::int64_t count);
}  // namespace cpu
namespace cuda {
TreeSum tree_sum;
// Loads every form of the kernel now. CUDA loads a kernel when it is first launched, and may wait for the kernels that
// run before it does: a receive that waits for another rank would then wait for ever.
void load_tree_sum();
}  // namespace cuda
namespace meta {
TreeSum tree_sum;
}

}  // namespace lockstep
