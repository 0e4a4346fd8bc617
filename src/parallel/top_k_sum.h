// A sum over ranks whose messages are the elements of largest magnitude (compressed_sum.h).
//
// Values and indices are two messages, each of its own type. Room: the entries of all ranks, of every sum that is under
// way.
#pragma once
#include "parallel/compressed_sum.h"

namespace lockstep {

class TopKSum final : public CompressedSum {
 public:
  TopKSum(const Options& options, Groups groups, Memory& memory, Stream& stream);

  void start(const ConstTensor& in, const Tensor& out) override;
  bool first_done() override { return values_leg_->done() && indices_leg_->done(); }
  void advance() override;
  void finish() override {}

 private:
  // Entries of one parameter, or its part in a piece.
  struct Choice {
    Range range;
    std::int64_t first, count;  // among the entries
  };
  Tensor values(const Buffer& buffer, std::int64_t first, std::int64_t count) const {
    return view(buffer, options_.dtype, {count}, first);
  }
  static Tensor indices(const Buffer& buffer, std::int64_t first, std::int64_t count) {
    return view(buffer, DType::i32, {count}, first);
  }

  const Options options_;
  Groups groups_;
  Stream& stream_;
  const Range own_;  // piece
  std::vector<Choice> choices_;
  Communicator::Counts counts_;             // of entries, by piece
  std::int64_t entries_ = 0;                // of this rank
  std::int64_t arriving_ = 0, places_ = 0;  // from each rank, and where this rank's entries begin
  Buffer values_, indices_, all_values_, all_indices_;
  Tensor out_;
  Communicator::Started values_leg_, indices_leg_;
};

}  // namespace lockstep
