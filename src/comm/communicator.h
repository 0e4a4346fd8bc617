// A communicator: one rank's membership of one group of ranks.
//
// Every operation is started with start() and belongs to the group until the Pending it gives has been waited for: the
// tensors may be neither written nor (the outs) read until wait() has returned. All ranks of a group start the same
// collectives in the same order; they happen in that order, so one may use what an earlier one has written. A send
// meets the recv of its peer, the first the first, and is in no order with anything else: two ranks may both send, then
// both receive. Nothing waits for ever: wait() has a deadline, and throws CommError that names who did not come; after
// a failure the whole group is of no further use, and every later call of any of its ranks fails with the same words.
//
// Where ranks compute in streams that run ahead of the host (a GPU: comm/threads/world.h, comm/nccl/communicator.h), a
// call stands for its place in the rank's compute stream. The operation begins when that stream has come to start(), in
// a stream beside it; wait() makes the compute stream wait and returns without waiting itself, as soon as the operation
// is in a stream, so "until wait() has returned" is an order of streams there too: what the stream is given after
// wait() may touch the tensors, the host may after it has synchronized with that. done() is about the device, and a
// wrapper that waits by asking (comm/watchdog.h) holds the host until the device has done it. A failure may come after
// wait() has returned: the next call of the group tells of it, and so does wait() when it is called again. A Pending
// that is destroyed before wait() makes the compute stream wait for what is in a stream already.
//
// A group of one works and costs nothing: what is in place stays where it is. A communicator and its Pendings are used
// by one thread at a time, and go before the world (the backend) they come from. Wrappers (comm/recorder.h,
// comm/watchdog.h, comm/delayed.h) own what they wrap and override start() and split(), check() where what they wrap
// may have something to tell there, and hand memory() on.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "comm/error.h"
#include "comm/message.h"
#include "tensor/memory.h"

namespace lockstep {

// An operation under way. One that is destroyed before it is done takes its rank out of the group, which fails for all
// the others: none of them may touch the tensors afterwards.
class Pending {
 public:
  virtual ~Pending() = default;
  // Whether wait() would return, or throw, at once. Asking does some of the work.
  virtual bool done() = 0;
  virtual void wait() = 0;
  // Who and what it is waiting for, in words, for reports; "" where nothing is known.
  virtual std::string waits_for() { return ""; }
};

// How a reduction is made.
struct Reducing {
  Reduction reduction = Reduction::sum;
  Algorithm algorithm = Algorithm::canonical;
};

// A rank's place in a division of a group: ranks of one color are a new group, in the order of their keys, then ranks.
// A rank of negative color is in none.
struct Place {
  int color = 0;
  int key = 0;
};

class Communicator {
 public:
  using Started = std::unique_ptr<Pending>;
  using Counts = std::vector<std::int64_t>;

  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }  // of the group
  Device device() const { return device_; }          // where the tensors are

  virtual Started start(const Message& message) = 0;
  // A new group of the ranks that share this one's color; null for a rank of none. Every rank calls it, in the same
  // order, with a function that says the same on all of them: so no rank must ask another, and one rank on `meta` can
  // be any rank of any world.
  virtual std::unique_ptr<Communicator> split(const std::function<Place(int rank)>& place, const std::string& name) = 0;
  // Throws the group's failure where it is known to have one. Where waits are of streams, a rank asks after it has
  // synchronized and before it believes what it has read; elsewhere wait() has told it, and there is nothing to ask.
  virtual void check() {}
  // Where tensors had best lie that go through this again and again, written into that ledger; null where any memory of
  // the device will do. Whether they lie there changes no bit, and no rank need do as the others. It may outlive this.
  virtual std::unique_ptr<Memory> memory(Ledger& /*ledger*/) { return nullptr; }

  Started all_reduce(const Tensor& x, Reducing how = {});
  Started reduce_scatter(const Tensor& out, const ConstTensor& in, Reducing how = {}, Counts counts = {});
  Started all_gather(const Tensor& out, const ConstTensor& in, Counts counts = {});
  // Several tensors in one call (comm/message.h); at least one.
  Started all_reduce(const std::vector<Operands>& all, Reducing how = {});
  Started reduce_scatter(const std::vector<Operands>& all, Reducing how = {});
  Started all_gather(const std::vector<Operands>& all);
  Started broadcast(const Tensor& x, int root);
  Started reduce(const Tensor& out, const ConstTensor& in, int root, Reducing how = {});  // out: the root's
  Started gather(const Tensor& out, const ConstTensor& in, int root, Counts counts = {});
  Started scatter(const Tensor& out, const ConstTensor& in, int root, Counts counts = {});
  Started all_to_all(const Tensor& out, const ConstTensor& in, Counts counts = {});
  Started send(const ConstTensor& x, int to);
  Started recv(const Tensor& x, int from);
  Started barrier();

 protected:
  Communicator(int rank, int size, std::string name, Device device)
      : rank_(rank), size_(size), name_(std::move(name)), device_(device) {}

 private:
  int rank_;
  int size_;
  std::string name_;
  Device device_;
};

// An operation that was done when it was started.
class NothingPending final : public Pending {
 public:
  bool done() override { return true; }
  void wait() override {}
};

// The ranks of a group that share this rank's color, in their new order.
std::vector<int> members_of(int rank, int size, const std::function<Place(int rank)>& place);

}  // namespace lockstep
