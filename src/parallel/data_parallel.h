// Data parallel: ranks that hold the same weights, compute on different samples of the global batch, and learn from all
// of it.
//
// The layout's dp_kind says who reads the data, who computes the losses and who updates:
//
//              distributed: ddp and ZeRO (distributed_dp.h)    central (central_dp.h)
//   batch      each rank reads its samples                     rank 0 reads all and scatters the tokens
//   losses     each rank, of its samples                       rank 0, from everyone's logits
//   gradients  all-reduce, or reduce-scatter to the shards     reduce to rank 0
//   update     each rank, of all weights or of its shard       rank 0, of all weights
//   weights    none are sent, or all-gather of the shards      broadcast from rank 0
//   overlap    as the layout says                              none: every message is waited for
//
// With parameter servers (server_dp.h) ranks read and compute as in distributed data parallel; gradients go to ranks
// apart, which sum them, update a shard of the weights each, and send these back, overlapped as the layout says.
//
// make_data_parallel chooses; everything else in a step is written against this interface. What follows from dp_kind
// for lists of actions and for checkpoints is in spec/layout/updates.h.
//
// One thread uses it; the ranks outlive it.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "comm/communicator.h"
#include "parallel/remote_loss.h"
#include "spec/layout/layout_spec.h"
#include "spec/layout/updates.h"
#include "tensor/memory.h"

namespace lockstep {

class DataParallel {
 public:
  struct Options {
    LayoutSpec layout;
    int rank;                   // this one, in the mesh
    std::int64_t B, T;          // samples of the global batch, tokens of a sample
    Device device;              // where the step runs; on meta there are no tokens
    bool asynchronous = false;  // parameter servers work for one worker at a time (train/async_steps.h)
  };
  // The ranks that have the same weights, servers last: for tensors, and for values of the host.
  struct Ranks {
    Communicator& replicas;
    Communicator& hosts;
  };
  virtual ~DataParallel() = default;

  // The samples of the global batch that this rank computes on.
  Share own() const { return share_of(options_.B, options_.layout, options_.layout.dp_rank(options_.rank)); }

  // The samples that the caller gives this rank, tokens and targets.
  virtual Share given() const = 0;
  // The tokens of own(), from those that were given. Valid until the next call.
  virtual std::span<const std::int32_t> own_tokens(std::span<const std::int32_t> given) = 0;

  // Samples of which this rank computes the losses.
  virtual std::int64_t loss_samples() const = 0;
  // Tokens of a micro-batch that the head's tiles are measured by on all ranks; 0: by each rank's own.
  virtual std::int64_t loss_tokens() const = 0;
  // None: each rank computes the losses of its own samples.
  virtual std::unique_ptr<RemoteLoss> make_remote_loss(const RemoteLoss::Options& options, Memory& memory) const = 0;

  bool updates() const { return rank_updates(options_.layout, options_.rank); }
  // The rank that alone gets the gradients' sums and sends the updated weights; none: all ranks do, of their shards.
  virtual std::optional<int> root() const = 0;
  // Whether messages run while ranks compute.
  virtual bool overlaps() const = 0;
  // Whether this rank is a parameter server.
  bool serves() const { return options_.layout.serves(options_.rank); }
  // After the ranks that update have decided on it (kernels/step_control.h): the others learn norm and decision.
  virtual void share_control(const Tensor& control) const = 0;

 protected:
  explicit DataParallel(const Options& options) : options_(options) {}
  Options options_;
};

// Of the kind that the layout asks for.
std::unique_ptr<DataParallel> make_data_parallel(const DataParallel::Options& options,
                                                 const DataParallel::Ranks& ranks);

}  // namespace lockstep
