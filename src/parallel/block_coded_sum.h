// A sum over ranks whose messages are block codes: bf16, int8 or one bit per element (compressed_sum.h).
//
// A code of a whole range is one run of words, of which a piece's code is a part. Room for messages: the range's words
// twice over, as little as the elements are more.
#pragma once
#include "kernels/block_codes.h"
#include "parallel/compressed_sum.h"

namespace lockstep {

// Of bf16, int8 and onebit.
BlockForm block_form(const Compression& compression);

class BlockCodedSum final : public CompressedSum {
 public:
  BlockCodedSum(const Options& options, Groups groups, Memory& memory, Stream& stream);

  void start(const ConstTensor& in, const Tensor& out) override;
  bool first_done() override { return leg_->done(); }
  void advance() override;
  void finish() override;

 private:
  Tensor words(const Buffer& buffer, std::int64_t begin, std::int64_t count) const {
    return view(buffer, DType::i32, {count}, begin);
  }
  // The word at which an element's block begins; of the end of the last piece, where the words end.
  std::int64_t word_of(std::int64_t element) const { return coded_words(form_, element); }
  void encode(const ConstTensor& x, std::int64_t x_begin, const Tensor& residual, const Range& range);
  void decode(const Tensor& y, std::int64_t y_begin, std::span<const ConstTensor> codes, std::int64_t codes_begin,
              const Range& range);

  const Options options_;
  const BlockForm form_;
  Groups groups_;
  Stream& stream_;
  const Range own_;  // piece
  Communicator::Counts counts_;
  Buffer code_, received_;
  Tensor out_;
  Communicator::Started leg_;
};

}  // namespace lockstep
