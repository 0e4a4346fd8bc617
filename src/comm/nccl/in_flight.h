// Operations in flight over one link: given to its stream one after the other, without anybody waiting.
//
// An operation is a list of steps. A step is given to the stream when the link has settled after the one before, and
// may say "not yet" to be asked again (for something that the host must learn first). advance() moves the list on; the
// rank calls it when it starts, tests or waits, and so does the thread that watches. Two events tell where the stream
// is: `begun`, when the rank's compute stream had reached the call and everything before it was done; and `ended`.
//
// An operation is late when its deadline has passed since somebody needed it and it could have begun: since then it can
// only be waiting for other ranks. Not thread-safe: guarded by the communicator's mutex.
#pragma once
#include <deque>
#include <functional>
#include <vector>

#include "comm/nccl/link.h"
#include "comm/wait_policy.h"
#include "tensor/side_stream.h"

namespace lockstep::nccl {

using waiting::Clock;
using Step = std::function<bool()>;  // false: not yet

struct Operation {
  std::string title;             // "#12 of 'dp', all_reduce of 1000 fp32 (sum, canonical)"
  double deadline;               // seconds
  std::vector<Step> steps;       // gone when all are in the stream
  std::unique_ptr<Event> ready;  // of the compute stream, where the call was made
  std::unique_ptr<Event> begun, ended;
  std::unique_ptr<Event> needed = {};  // of the compute stream, where it began to wait; none while it does not
  std::size_t next = 0;
  bool entered = false;                           // its first step is in the stream, or can be
  bool issued = false;                            // all of it is
  std::optional<Clock::time_point> asked = {};    // since when the host asks
  std::optional<Clock::time_point> overdue = {};  // since when only other ranks can hold it up
};

class InFlightOperations {
 public:
  // No link: a group of one.
  InFlightOperations(std::unique_ptr<Link> link, Device device) : side_(device), link_(std::move(link)) {}

  Link& link() { return *link_; }
  Stream& stream() { return side_.stream(); }
  void add(std::shared_ptr<Operation> operation) { queue_.push_back(std::move(operation)); }
  void advance();       // throws what a step or the link throws
  void poll_errors() {  // throws what NCCL has found by itself
    if (link_) link_->settled();
  }
  bool idle();  // all that was added is done
  bool unissued() const { return !queue_.empty(); }
  // An operation that is late, if any.
  std::shared_ptr<Operation> late();
  // The first that is not done, as far as is known; "" where there is none.
  std::string first_title() const {
    return running_.empty() ? queue_.empty() ? "" : queue_.front()->title : running_.front()->title;
  }
  void abort() noexcept;

 private:
  SideStream side_;
  std::unique_ptr<Link> link_;                           // goes before the stream
  std::deque<std::shared_ptr<Operation>> queue_ = {};    // not issued, the front perhaps half
  std::deque<std::shared_ptr<Operation>> running_ = {};  // in the stream
};

}  // namespace lockstep::nccl
