// Central data parallel: rank 0 has the data and the optimizer, the others compute for it.
//
// In each step rank 0 scatters the tokens, gathers everyone's logits, computes every loss, scatters the logits'
// gradients, sums up the weights' gradients (ddp_buckets.h, with a root), updates, and broadcasts the weights
// (zero_weights.h, with a root). Nothing of it overlaps: each message is what the next computation reads
// (docs/data-parallel.md).
//
// One thread uses it; ranks and memory outlive it.
#pragma once
#include <vector>

#include "parallel/data_parallel.h"

namespace lockstep {

class CentralDp final : public DataParallel {
 public:
  CentralDp(const Options& options, const Ranks& ranks);

  Share given() const override { return {0, updates() ? options_.B : 0}; }
  std::span<const std::int32_t> own_tokens(std::span<const std::int32_t> given) override;
  std::int64_t loss_samples() const override { return given().count; }
  // Rank 0's, which has the most: tiles are exchanged in rounds, the same on all ranks.
  std::int64_t loss_tokens() const override { return micro_tokens(0); }
  std::unique_ptr<RemoteLoss> make_remote_loss(const RemoteLoss::Options& options, Memory& memory) const override;
  std::optional<int> root() const override { return 0; }
  bool overlaps() const override { return false; }
  void share_control(const Tensor& control) const override { ranks_.replicas.broadcast(control, 0)->wait(); }

 private:
  std::int64_t micro_tokens(int rank) const;  // of a micro-batch of that rank

  Ranks ranks_;
  std::vector<std::int32_t> tokens_;  // of this rank, from rank 0
};

// The losses, on rank 0. In round i every rank brings the logits of its tokens [i·tile, (i + 1)·tile) of a
// micro-batch, as many of those as it has. So rank 0 holds N tiles of logits at a time and never all of them. A rank
// sends its tokens times the vocabulary in the accumulator type, and gets as many in the type that computes.
//
// Rank 0's buffers are taken at construction.
class CentralLoss final : public RemoteLoss {
 public:
  // `tokens` and `micro`: of a micro-batch, by rank, and how many micro-batches. The ranks' samples follow each other
  // in the options' tensors, and each rank's micro-batches are in order.
  CentralLoss(const Options& options, std::vector<std::int64_t> tokens, int micro, Communicator& ranks, Memory& memory);

  std::int64_t most_tokens() const override;
  void run(const ConstTensor& logits, const Tensor& d_logits, int micro, std::int64_t first, bool training,
           Stream& stream) const override;

 private:
  Options options_;
  std::vector<std::int64_t> tokens_;
  int micro_;
  Communicator& ranks_;
  Buffer logits_, d_logits_;  // of all ranks, on rank 0; one buffer where the types are one
};

}  // namespace lockstep
