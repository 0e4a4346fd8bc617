// Data parallel with parameter servers: ranks apart from those that compute hold the weights and the optimizer's state,
// each server a shard of them. In every step workers send their gradients and receive the updated weights.
//
//   worker   forward, backward; sends each unit's gradient as soon as it is whole; receives the next step's weights
//   server   receives the workers' gradients and sums them (server_gradients.h); norm, clipping and update of its
//            shard, which it sends to every worker (server_links.h)
//
// The step is synchronous and the sums are ddp's, so what is learned is equal to ddp's bit for bit. Workers read their
// own samples and compute their losses; servers have none. Servers find norm and decision together, and the first tells
// the workers.
//
// Asynchronously the same happens for one worker at a time, when its gradient comes: train/async_steps.h.
#pragma once
#include "parallel/data_parallel.h"

namespace lockstep {

class ServerDp final : public DataParallel {
 public:
  ServerDp(const Options& options, const Ranks& ranks) : DataParallel(options), replicas_(ranks.replicas) {}

  Share given() const override { return own(); }
  std::span<const std::int32_t> own_tokens(std::span<const std::int32_t> given) override { return given; }
  std::int64_t loss_samples() const override { return own().count; }
  std::int64_t loss_tokens() const override { return 0; }
  std::unique_ptr<RemoteLoss> make_remote_loss(const RemoteLoss::Options&, Memory&) const override { return nullptr; }
  std::optional<int> root() const override { return std::nullopt; }
  bool overlaps() const override { return options_.layout.overlap == Switch::on; }
  void share_control(const Tensor& control) const override {
    if (options_.asynchronous) return;  // the first server tells at the end of a step
    replicas_.broadcast(control, static_cast<int>(options_.layout.replicas()))->wait();
  }

 private:
  Communicator& replicas_;
};

}  // namespace lockstep
