// Messages between hosts, and MPI's own collectives: the only door to MPI.
//
// Every method but post(), tell() and start_native() is for the progress thread alone, which makes all MPI calls. Those
// three may be called from any thread: they leave what is wanted in a queue and call the progress thread. A Ticket says
// when it is done; what the messages are read from or written to must stay until then, so a ticket can hold it.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/message.h"
#include "comm/mpi/bell.h"

namespace lockstep::mpi {

struct Transfer {
  enum class Way : std::uint8_t { send, receive };
  Way way;
  void* data;
  std::int64_t bytes;  // at most 1 GiB
  int peer;            // rank of the world
  int tag;
};

struct Ticket {
  std::atomic<int> left = 0;
  std::shared_ptr<void> holds;
  bool done() const { return left.load(std::memory_order_acquire) == 0; }
};

// A failure as other hosts are told of it.
struct Notice {
  std::uint64_t group = 0;  // its key; 0: all of the world
  bool secondary = false;
  std::string words;
};

// Whether MPI has a collective for this call; else `native` is done as `canonical` is. All ranks say the same.
bool has_native(const Message& message, int ranks);
// Whether this rank's part lies where MPI_IN_PLACE says it does. (Not of a reduce_scatter: there MPI puts the part at
// the beginning of what it was cut from, not in its place.)
bool in_place(const Message& message, int rank, int ranks);

class Wire {
 public:
  using Tag = int;
  static constexpr Tag kNotices = 1;

  // Initialises MPI, in the thread that calls it, which is the progress thread from then on.
  Wire();
  ~Wire();
  int rank() const { return rank_; }
  int size() const { return size_; }
  // What every process gives, by rank.
  std::vector<std::string> gather(const std::string& mine);
  void set_bell(Bell& bell) { bell_ = &bell; }
  void listen(std::function<void(const Notice&)> hear);  // to notices, from now on

  std::shared_ptr<Ticket> post(std::vector<Transfer> transfers, std::shared_ptr<void> holds = nullptr);
  void tell(const std::vector<int>& ranks, const Notice& notice);
  // The call's tensors must stay until it is done. Members are ranks of the world. In place, where it has no root, is
  // what all ranks are or none; what is not said to be, and overlaps, is copied first.
  std::shared_ptr<Ticket> start_native(const Message& call, bool in_place, const std::vector<int>& members,
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
    std::shared_ptr<Ticket> ticket;
  };
  std::shared_ptr<Ticket> queue(Wanted wanted);

  int rank_ = 0, size_ = 1;
  Bell* bell_ = nullptr;
  std::function<void(const Notice&)> hear_;
  std::unique_ptr<State> state_;
  std::mutex mutex_;
  std::deque<Wanted> queue_;
};

}  // namespace lockstep::mpi
