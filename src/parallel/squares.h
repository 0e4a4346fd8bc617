// Sums of squares that a step leaves on the device, to be read when it has ended: in bins of integers
// (kernels/norm_sum.h), so no order of adding changes them.
#pragma once
#include <cstdint>
#include <span>
#include <utility>

#include "kernels/norm_sum.h"
#include "tensor/memory.h"
#include "tensor/stream.h"

namespace lockstep {

class Squares {
 public:
  // `sums` of them, one after the other.
  Squares(int sums, Memory& memory)
      : sums_(sums), bins_(memory.allocate(sums * kNormBins * 8, Tag::workspace)), adds_(false) {}

  void begin() { adds_ = false; }  // what comes next starts all of them anew
  void add(int sum, const ConstTensor& x, Stream& stream) {
    if (!std::exchange(adds_, true))
      for (int i = 0; i < sums_; ++i) norm_sum({.bins = bins(i), .x = ConstTensor(x).slice(0, 0, 0)}, stream);
    norm_sum({.bins = bins(sum), .x = x, .accumulate = true}, stream);
  }
  // Of all of them: what download() and value() take.
  Tensor all() const { return view(bins_, DType::i64, {sums_ * kNormBins}); }
  static double value(std::span<std::int64_t> all, int sum) {
    const auto bins = all.subspan(static_cast<std::size_t>(sum * kNormBins), kNormBins);
    norm_carry(bins);
    return norm_total(bins);
  }

 private:
  Tensor bins(int sum) const { return view(bins_, DType::i64, {kNormBins}, sum * kNormBins); }
  std::int64_t sums_;
  Buffer bins_;
  bool adds_;
};

}  // namespace lockstep
