// DDP: every rank keeps the gradients of all units, adds up its micro-batches, and sums them over the ranks once per
// step, bucket by bucket, while backward continues.
//
//   gradient = Σ over ranks of Σ over micro-batches of the rank's gradient     (every target has its weight already)
//
// Gradients are stored where they are sent from: the units' flat gradients follow each other in the order in which
// backward finishes them. A bucket is a run of whole parameters of at most Buckets::bytes (or one larger parameter):
// one range of elements and one message, whatever units it touches. It is summed as soon as all of it is complete on
// this rank; every rank starts the same buckets in the same order. Where state is sharded (ZeRO 1), a bucket is a unit
// and a rank receives its shard of the sum; units of a bundle go in one call (ZeRO 3). With a root, only that rank
// receives the sums (central data parallel). Where there are parameter servers a bucket is a unit too, and goes to them
// instead (server_links.h).
//
// Where less is sent than all (Options::compress), each bucket is summed as parallel/compressed_sum.h says, a unit of a
// bundle too.
//
// The embedding's table may be summed by rows (Options::rows; parallel/embedding_rows.h): it is a bucket of its own.
// Where state is sharded, its whole unit is all-reduced in steps that do so.
//
// Every element's sum is equal bit for bit for any bucket size, with overlap and without (docs/design.md, "The order of
// sums").
#pragma once
#include "parallel/gradient_sums.h"
#include "parallel/gradients.h"

namespace lockstep {

class DdpBuckets final : public Gradients {
 public:
  struct Buckets {
    std::int64_t bytes = 0;  // at most; 0: every parameter is a bucket
  };
  DdpBuckets(const Options& options, const Buckets& buckets, ZeroGroups& groups, Memory& memory, Stream& stream);

  void begin(std::span<const std::int32_t> tokens) override;
  const std::vector<Tensor>& open(int unit, int) override { return tensors_[unit]; }
  bool adds(int micro) const override { return micro > 0; }
  void whole(int unit, int micro) override;
  Tensor tied() override { return tied_gradient_; }
  void wait() override;
  Tensor reduced(int unit) const override;
  std::vector<Owed> owed() const override;
  Tensor compression_squares() const override { return compressed_ ? compressed_->squares() : Tensor{}; }
  void sum_owed() override;
  void deal_owed() override;

 private:
  void cut_into_buckets(const Buckets& buckets);
  void compress(const Options& options, Memory& memory);
  void start(std::int64_t begin, std::int64_t end);
  void sum_unit_of_rows();
  void sum_rows();
  void wait_for_buckets();
  Tensor table() const;
  bool goes_by_unit() const { return groups_.sharded() || groups_.servers(); }
  Tensor flat(int unit) const { return view(buffer_, dtype_, {sizes_[unit]}, begins_[unit]); }

  ZeroGroups& groups_;
  Stream& stream_;
  std::optional<TiedParameter> tie_;
  std::vector<const UnitLayout*> layouts_;
  DType dtype_;
  bool overlap_;
  Reducing how_;
  std::function<void(int, const Tensor&)> complete_;
  std::optional<int> root_;
  std::int64_t elements_ = 0;
  std::vector<std::int64_t> begins_, sizes_;  // by unit, padding included
  std::vector<std::int64_t> ends_;            // of the buckets, ascending
  std::int64_t table_at_ = -1;                // where the bucket begins whose rows may be summed; -1: none
  std::vector<int> order_;
  std::vector<bool> ends_call_;     // by unit of the order
  std::vector<Operands> together_;  // of the call that is to be started
  Buffer buffer_, tied_;
  Tensor tied_gradient_;                       // that the borrower has made, here or where it came from
  std::vector<std::vector<Tensor>> tensors_;   // by unit and parameter
  std::size_t units_whole_ = 0, started_ = 0;  // of this step
  std::vector<Communicator::Started> pending_;
  GradientSums sums_;                         // where state is sharded
  std::optional<EmbeddingRows> rows_;         // none: all rows of the embedding are summed
  bool unpacks_ = false;                      // what is summed are rows
  std::optional<CompressedSums> compressed_;  // by bucket; in their place, where less is sent than all
};

}  // namespace lockstep
