// Messages between the processes of different hosts: what the engine needs of MPI (comm/mpi/transport.h) or of TCP
// (comm/tcp/transport.h).
//
// post(), tell() and start_native() may be called from any thread. All other methods are for the progress thread alone
// (world.h), which also made the transport. A Completion says when a request is done; what it reads or writes must
// stay until then, so a completion can hold it. Messages from one rank to another with the same tag are received in the
// order in which they were sent, each whole by one receive of as many bytes; those of different tags are unordered.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/error.h"
#include "comm/message.h"
#include "comm/processes/wakeup.h"

namespace lockstep::processes {

struct Transfer {
  enum class Way : std::uint8_t { send, receive };
  Way way;
  void* data;
  std::int64_t bytes;  // at most 1 GiB
  int peer;            // rank of the world, on another host
  int tag;
};

struct Completion {
  std::atomic<int> left = 0;
  std::shared_ptr<void> holds;
  bool done() const { return left.load(std::memory_order_acquire) == 0; }
};

// A failure as other hosts are told of it.
struct FailureNotice {
  std::uint64_t group = 0;  // its key; 0: all of the world
  CommFailure failure = {};
};

// By rank of the world.
struct RankHosts {
  std::vector<int> host;          // any number that ranks of one host share
  std::vector<std::string> name;  // of its host, for error messages
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // What every process gives, by rank: texts of up to 255 characters.
  virtual std::vector<std::string> gather(const std::string& mine) = 0;
  virtual void set_wakeup(Wakeup& wakeup) = 0;
  // To failures that others tell, or that the transport itself sees, from now on. Called without a lock of its own.
  using OnNotice = std::function<void(const FailureNotice&)>;
  virtual void listen(OnNotice on_notice) = 0;
  // Where there are several hosts, before the first message; all ranks call it.
  virtual void connect(const RankHosts& hosts) = 0;

  virtual std::shared_ptr<Completion> post(std::vector<Transfer> transfers, std::shared_ptr<void> holds = nullptr) = 0;
  virtual void tell(const std::vector<int>& ranks, const FailureNotice& notice) = 0;
  // Whether it has a collective of its own for this call; else `native` is done as `canonical` is. All ranks say the
  // same.
  virtual bool has_native(const Message& call, int ranks) const = 0;
  // The call's tensors must stay until it is done. Members are ranks of the world. In place (native_plan.h), where it
  // has no root, is what all ranks are or none; what is not said to be, and overlaps, is copied first.
  virtual std::shared_ptr<Completion> start_native(const Message& call, bool in_place, const std::vector<int>& members,
                                                   std::uint64_t group) = 0;

  // Starts what is queued, and sees what is done. Whether it wants to be called again soon: one that has a thread of
  // its own never does.
  virtual bool poll() = 0;
  // Whether failures are noticed only by poll().
  virtual bool is_polled() const = 0;
  virtual bool idle() = 0;  // nothing is under way
  // All processes must come to it.
  virtual void finalize() = 0;
};

}  // namespace lockstep::processes
