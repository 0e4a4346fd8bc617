// Sums whose operands are of several kinds: ranks' own elements, and other hosts' partial sums, which are kept wide.
//
// A partial sum takes the place of its first leaf, and its other leaves are minus zeros, which change no bit of a sum;
// so the tree stays the one of all ranks, and a mean divides by their number. (The largest of several is its own
// neighbour instead.) Block by block; a 16-bit operand is made wide as it is read. Single-threaded: one object for one
// thread at a time.
#pragma once
#include <span>
#include <vector>

#include "kernels/tree_sum.h"

namespace lockstep::processes {

struct Summand {
  const void* data;   // null: a leaf that an earlier partial sum has in it
  bool wide = false;  // of the accumulator's type
};

struct WideSumArgs {
  std::span<void* const> outs;
  bool wide = false;  // the outs are of the accumulator's type, and hold a partial sum
  std::span<const Summand> ins;
  std::span<const std::uint8_t> joins;
  DType dtype = DType::f32;
  Reduction reduction = Reduction::sum;
  std::int64_t count = 0;
};

class WideSum {
 public:
  explicit WideSum(Stream& stream) : stream_(stream) {}
  void run(const WideSumArgs& args);

 private:
  Stream& stream_;  // of the cpu
  std::vector<char> scratch_;
};

// The type that partial sums of these elements are kept in.
constexpr DType wide_of(DType dtype) { return is_float(dtype) ? accumulator_of(dtype) : dtype; }

}  // namespace lockstep::processes
