// The gradients that a parameter server holds: its shard of every unit's, summed over the workers.
//
//   gradient = Σ over workers of what the worker has sent, in one balanced tree over workers (kernels/tree_sum.h)
//
// the tree of the canonical all-reduce over as many ranks: the sums are equal to ddp's bit for bit (docs/design.md,
// "The order of sums"). The workers add up their micro-batches themselves (ddp_buckets.h).
//
// The shards of all workers of one unit have room while they are added up; with overlap those of two units, so that one
// can come while the other is summed. Where one worker's gradient comes at a time (server_links.h), it is the sum.
#pragma once

#include "parallel/gradients.h"

namespace lockstep {

class ServerGradients final : public Gradients {
 public:
  ServerGradients(const Options& options, ZeroGroups& groups, Memory& memory, Stream& stream);

  const std::vector<Tensor>& open(int unit, int micro) override;  // a server computes nothing
  bool adds(int) const override { return false; }
  void whole(int unit, int micro) override;
  Tensor tied() override { return {}; }
  void wait() override;
  Tensor reduced(int unit) const override { return kept_[static_cast<std::size_t>(unit)]; }

 private:
  bool sums() const { return links_.senders() > 1; }
  struct Arriving {
    int unit = -1;
    Tensor all;  // shards, by worker
    Communicator::Started started;
  };
  void add_up(Arriving& one);

  ServerLinks& links_;
  Stream& stream_;
  DType dtype_;
  Buffer kept_buffer_, room_;
  std::vector<Tensor> kept_;  // by unit
  std::int64_t most_ = 0;     // elements of a unit's shards of all workers
  std::vector<std::uint8_t> joins_;
  std::vector<Arriving> arriving_;  // as many as there is room for
  std::size_t next_ = 0;
  std::vector<Communicator::Started> coming_;  // where nothing is summed
};

}  // namespace lockstep
