// Rows of a 2- or 3-dim operand by number, and loops over many of them.
#pragma once
#include <algorithm>

#include "tensor/cpu/stream.h"
#include "tensor/tensor.h"

namespace lockstep::cpu {

// Row r of (N, C), or of (N, M, C) with r = n·M + m.
template <class S, class View>
class Rows {
 public:
  explicit Rows(const View& t)
      : base_(t.none() ? nullptr : t.template data<std::remove_const_t<S>>()),
        inner_(t.dims() == 3 ? t.dim(1) : 1),
        outer_stride_(t.none() ? 0 : t.stride(0)),
        inner_stride_(t.dims() == 3 ? t.stride(1) : 0) {}
  S* operator[](std::int64_t row) const {
    return inner_ == 1 ? base_ + row * outer_stride_
                       : base_ + row / inner_ * outer_stride_ + row % inner_ * inner_stride_;
  }
  explicit operator bool() const { return base_ != nullptr; }

 private:
  S* base_;
  std::int64_t inner_;
  std::int64_t outer_stride_;
  std::int64_t inner_stride_;
};

template <class S>
Rows<S, Tensor> rows(const Tensor& t) {
  return Rows<S, Tensor>(t);
}
template <class S>
Rows<const S, ConstTensor> rows(const ConstTensor& t) {
  return Rows<const S, ConstTensor>(t);
}

// How many rows of this many elements make a piece of work worth a hand-over between threads; a function of the shape
// alone.
inline std::int64_t rows_per_item(std::int64_t columns) {
  return std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, columns));
}

// body(row, worker) for every row, in pieces.
template <class Body>
void each_row(Stream& stream, std::int64_t count, std::int64_t columns, Body&& body) {
  const std::int64_t piece = rows_per_item(columns);
  stream.workers().each((count + piece - 1) / piece, [&](std::int64_t item, int worker) {
    const std::int64_t end = std::min(count, (item + 1) * piece);
    for (std::int64_t row = item * piece; row < end; ++row) body(row, worker);
  });
}

// body(begin, count) for consecutive ranges of a flat operand.
template <class Body>
void each_range(Stream& stream, std::int64_t elements, Body&& body) {
  constexpr std::int64_t kRange = 16384;
  stream.workers().each((elements + kRange - 1) / kRange, [&](std::int64_t item, int) {
    body(item * kRange, std::min(kRange, elements - item * kRange));
  });
}

}  // namespace lockstep::cpu
