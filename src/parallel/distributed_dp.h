// Distributed data parallel: every rank reads its own samples, computes their losses and updates its weights (ddp) or
// its shard of them (ZeRO).
//
// The messages are those of gradients (ddp_buckets.h, zero_gradients.h) and of weights (zero_weights.h).
#pragma once
#include "parallel/data_parallel.h"

namespace lockstep {

class DistributedDp final : public DataParallel {
 public:
  explicit DistributedDp(const Options& options) : DataParallel(options) {}

  Share given() const override { return own(); }
  std::span<const std::int32_t> own_tokens(std::span<const std::int32_t> given) override { return given; }
  std::int64_t loss_samples() const override { return own().count; }
  std::int64_t loss_tokens() const override { return 0; }
  std::unique_ptr<RemoteLoss> make_remote_loss(const RemoteLoss::Options&, Memory&) const override { return nullptr; }
  std::optional<int> root() const override { return std::nullopt; }
  bool overlaps() const override { return options_.layout.overlap == Switch::on; }
  void share_control(const Tensor&) const override {}  // every rank has decided, and alike
};

}  // namespace lockstep
