// The links between parameter servers and the ranks that compute: one group for each server of the weights, in which it
// comes last.
//
//   push   every worker sends each server its shard of a unit's gradient      a worker sends Ψ in a step
//   pull   each server sends every worker its shard of a unit's weights       a worker receives Ψ
//
// so the link of one of S servers carries 2 · workers · Ψ / S elements in a step (docs/synchronization.md). Sums are
// not made on the way: a server receives every worker's shard apart, in the order of workers, and adds them up itself
// (server_gradients.h), in the order in which ddp would.
//
// Asynchronously each worker is served by itself: between serve(worker) and serve_all(), push, receive and pull are
// messages between the servers and that worker alone, who is told by others when it is its turn (train/async_steps.h).
//
// All ranks construct theirs at the same point, and start the same calls in the same order. One thread uses it; it is
// destroyed before the communicator that it was made from.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "spec/layout/shard.h"

namespace lockstep {

class ServerLinks {
 public:
  // `all`: workers, then servers.
  ServerLinks(Communicator& all, int workers, bool asynchronous = false);

  int workers() const { return workers_; }
  // Workers whose gradients come at a time.
  int senders() const { return asynchronous_ ? 1 : workers_; }
  // Of a worker it is itself that is served.
  void serve(int worker) { served_ = worker; }
  void serve_all() { served_.reset(); }
  bool serves() const { return own_ >= 0; }

  // Of a worker: the unit's flat gradient, all shards of it, goes to the servers. They are under way until each of what
  // is added to `started` has been waited for.
  void push(const ConstTensor& flat, std::vector<Communicator::Started>& started);
  // Of a server: the workers' shards, one after the other.
  Communicator::Started receive(const Tensor& all);

  // A worker's flat weights of the unit, whole, or the shard of a server: what workers have of them becomes what
  // servers have.
  Communicator::Started pull(const Tensor& weights);

 private:
  Communicator& own() const { return *links_[static_cast<std::size_t>(own_)]; }
  Communicator::Counts counts(std::int64_t shard) const;

  int workers_;
  bool asynchronous_;
  std::optional<int> served_;                         // none: all
  int own_;                                           // the server that this rank is; -1: a worker
  std::vector<std::unique_ptr<Communicator>> links_;  // by server; of a server its own alone
};

}  // namespace lockstep
