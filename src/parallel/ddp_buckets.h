// Gradients that every rank keeps: of all units, its micro-batches added up, and summed over the ranks once a step,
// bucket by bucket, while backward goes on.
//
// They live where they are sent from. The units' flat gradients lie one behind the other in the order in which backward
// ends with them, so that a bucket, a run of whole parameters of at most so many bytes (or one larger parameter), is
// one range of elements and one message, whatever units it touches. Where ranks cut state between them, a bucket is a
// unit, and a rank gets its own part of the sum. A bucket is summed over the ranks as soon as all of it is whole on
// this rank; every rank starts the same buckets in the same order. What is summed and in which order of ranks does not
// depend on how it was cut: every element's sum is the same to the bit for any bucket size, with overlap and without
// (docs/design.md, the order of sums).
//
// With a root (Options), only that rank gets the sums.
#pragma once
#include "parallel/gradient_sums.h"
#include "parallel/gradients.h"

namespace lockstep {

class DdpBuckets final : public Gradients {
 public:
  struct Buckets {
    std::int64_t bytes = 0;  // at most; 0: every parameter is one
  };
  DdpBuckets(const Options& options, const Buckets& buckets, ZeroGroups& groups, Memory& memory, Stream& stream);

  const std::vector<Tensor>& open(int unit, int) override { return tensors_[unit]; }
  bool adds(int micro) const override { return micro > 0; }
  void whole(int unit, int micro) override;
  Tensor tied() override { return tied_gradient_; }
  void wait() override;
  Tensor reduced(int unit) const override;

 private:
  void cut_into_buckets(const Buckets& buckets);
  void start(std::int64_t begin, std::int64_t end);
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
  std::vector<int> order_;
  Buffer buffer_, tied_;
  Tensor tied_gradient_;                       // that the borrower has made, here or where it came from
  std::vector<std::vector<Tensor>> tensors_;   // by unit and parameter
  std::size_t units_whole_ = 0, started_ = 0;  // of this step
  std::vector<Communicator::Started> pending_;
  GradientSums sums_;  // where ranks cut
};

}  // namespace lockstep
