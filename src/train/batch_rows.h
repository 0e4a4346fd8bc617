// Which tokens of the samples the rows of a batch are, micro-batch by micro-batch, on one rank.
//
// With padding, rows are all tokens of all samples, of which context parallelism gives this rank some. Without
// (data/dataset.h, kPadding), a micro-batch is one row of documents: the tokens of its samples one after another, and
// then as few tokens of padding as make it one that can be split over the ranks of `context`. It is split as if it were
// a sample of N tokens. All ranks that have a part of a micro-batch find the same, from the samples.
//
// Finding rows allocates nothing. One thread uses it.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/slots.h"
#include "spec/layout/context_split.h"
#include "spec/layout/tensor_split.h"

namespace lockstep {

class BatchRows {
 public:
  struct Sizes {
    std::int64_t B, T;  // samples of this rank, tokens of a sample
    int micro;
    ContextSplit context = {};
    bool varlen = false;
    std::int64_t least = 1;     // tokens of a varlen micro-batch, of all ranks: that each has one
    std::int64_t expected = 0;  // of a varlen micro-batch that nobody has read (on meta): its tokens, of all ranks
  };
  static constexpr std::int64_t kNone = -1;  // a row of padding

  BatchRows() = default;
  explicit BatchRows(const Sizes& sizes);

  // Of samples without padding: (B, T), kPadding after the tokens of each.
  void find(std::span<const std::int32_t> tokens);

  int micros() const { return sizes_.micro; }
  // Of micro-batch m: the tokens here, and of all ranks of `context`; and the room for those here.
  std::int64_t count(int m) const { return sizes_.varlen ? sizes_.context.tokens(whole(m)) : room(); }
  std::int64_t whole(int m) const { return sizes_.varlen ? whole_[static_cast<std::size_t>(m)] : row_room(); }
  std::int64_t room() const {
    return sizes_.varlen ? sizes_.context.tokens(row_room())
                         : sizes_.B / sizes_.micro * sizes_.context.tokens(sizes_.T);
  }
  RowExtent extent(int m, const TensorSplit& split) const;
  // The index of a row among the tokens of all samples: of those here, or of those of all ranks of `context`.
  std::int64_t place(int m, std::int64_t row) const;
  std::int64_t place_in_whole(int m, std::int64_t row) const;

 private:
  std::int64_t row_room() const { return sizes_.B / sizes_.micro * sizes_.T; }

  Sizes sizes_{};
  std::vector<std::int64_t> whole_;   // by micro-batch
  std::vector<std::int64_t> places_;  // by micro-batch and row of all ranks
};

}  // namespace lockstep
