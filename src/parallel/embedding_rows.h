// The embedding's gradient summed over ranks by rows: only those of tokens that some rank has in the step (layout
// embedding_gradient; exact).
//
// A rank's gradient of the table is zero outside of the rows of its own tokens. Before a step ranks tell each other
// which rows those are, a bit for each row of the table (of this rank's part of it, where tensor parallelism splits
// it):
//
//   all-gather  ⌈V/32⌉ words of each rank
//
// so all of them know the rows U that any of them has, and choose the same form:
//
//   rows   the rows of U are packed one after the other, and |U|·C elements are summed in place of V·C. Never more than
//          the tokens of the step, or V.
//   auto   the same where |U| <= V/2; else all rows are summed, as "dense" does. (Where state is sharded and the unit
//   has
//          another table of P rows, which is then all-reduced too: (V - P)/2, so that no more is sent than by dense.)
//
// Each element is summed over the same ranks in the same tree as dense, and what is left out is +0 on all of them,
// whose sum is +0: the result is equal bit for bit, values that are not finite included.
//
// One thread uses it; ranks, memory and stream outlive it. All ranks construct theirs, and call find(), at one point.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "spec/layout/layout_spec.h"
#include "spec/layout/tensor_split.h"
#include "tensor/memory.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

class EmbeddingRows {
 public:
  struct Options {
    EmbeddingGradient form;    // not dense
    Part rows;                 // of the vocabulary, that are here
    std::int64_t width;        // C
    std::int64_t most_tokens;  // of a step, over all ranks
    std::int64_t beside = 0;   // P
    DType dtype = DType::f32;  // of gradients
  };
  // The rows that are summed in a step, at most; where `auto` may find more, it sums all of them instead.
  static std::int64_t most_rows(const Options& options);

  EmbeddingRows(const Options& options, Communicator& ranks, Memory& memory, Stream& stream);

  // Finds the rows of a step in which this rank has these tokens. On meta, which has none, as many as can be.
  void find(std::span<const std::int32_t> tokens);
  bool dense() const { return dense_; }  // all rows are summed in this step
  // The rows of the table (V, C) that are summed, one after the other; none where no rank has a token of this part.
  Tensor pack(const ConstTensor& table);
  // When they are the sums: puts them back.
  void unpack(const Tensor& table);

 private:
  // The table by rows, those that were found, and their numbers.
  Tensor by_rows(const ConstTensor& table) const;
  Tensor packed() const { return view(packed_, options_.dtype, {found_, options_.width}); }
  Tensor listed() const { return view(rows_, DType::i32, {found_}); }

  const Options options_;
  Communicator& ranks_;
  Stream& stream_;
  const std::int64_t words_;
  Buffer present_, packed_, rows_;
  std::vector<std::int32_t> bits_, numbers_;  // on the host: of all ranks, then of this one; rows that were found
  std::int64_t found_ = 0;
  bool dense_ = true;
};

}  // namespace lockstep
