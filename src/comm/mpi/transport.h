// Messages between hosts, and MPI's own collectives: the only code that calls MPI.
//
// post(), tell() and start_native() may be called from any thread: they queue what is wanted and wake the progress
// thread. All other methods are for the progress thread alone, which makes all MPI calls. A Completion says when a
// request is done; what it reads or writes must stay until then, so a completion can hold it.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/error.h"
#include "comm/message.h"
#include "comm/mpi/wakeup.h"

namespace lockstep::mpi {

struct Transfer {
  enum class Way : std::uint8_t { send, receive };
  Way way;
  void* data;
  std::int64_t bytes;  // at most 1 GiB
  int peer;            // rank of the world
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

// Whether MPI has a collective for this call; else `native` is done as `canonical` is. All ranks say the same.
bool has_native(const Message& message, int ranks);
// Whether this rank's part is where MPI_IN_PLACE says it does. (Not of a reduce_scatter: there MPI puts the part at
// the beginning of what it was cut from, not in its place.)
bool in_place(const Message& message, int rank, int ranks);

class Transport {
 public:
  using Tag = int;
  static constexpr Tag kNotices = 1;

  // Initialises MPI, in the thread that calls it, which is the progress thread from then on.
  Transport();
  ~Transport();
  int rank() const { return rank_; }
  int size() const { return size_; }
  // What every process gives, by rank.
  std::vector<std::string> gather(const std::string& mine);
  void set_wakeup(Wakeup& wakeup) { wakeup_ = &wakeup; }
  void listen(std::function<void(const FailureNotice&)> on_notice);  // to notices, from now on

  std::shared_ptr<Completion> post(std::vector<Transfer> transfers, std::shared_ptr<void> holds = nullptr);
  void tell(const std::vector<int>& ranks, const FailureNotice& notice);
  // The call's tensors must stay until it is done. Members are ranks of the world. In place, where it has no root, is
  // what all ranks are or none; what is not said to be, and overlaps, is copied first.
  std::shared_ptr<Completion> start_native(const Message& call, bool in_place, const std::vector<int>& members,
                                           std::uint64_t group);

  // Starts what is queued, and sees what is done. Whether anything is under way.
  bool poll();
  bool idle();
  // All processes must come to it.
  void finalize();

 private:
  struct State;  // what MPI's types are needed for
  struct Wanted {
    std::vector<Transfer> transfers;
    std::function<void(State&)> native;
    std::shared_ptr<Completion> completion;
  };
  std::shared_ptr<Completion> queue(Wanted wanted);

  int rank_ = 0, size_ = 1;
  Wakeup* wakeup_ = nullptr;
  std::function<void(const FailureNotice&)> on_notice_;
  std::unique_ptr<State> state_;
  std::mutex mutex_;
  std::deque<Wanted> queue_;
};

}  // namespace lockstep::mpi
