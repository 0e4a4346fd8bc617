// What a collective does, step by step, on each rank.
//
// All ranks of a host make the same number of steps, with a barrier of the host's ranks between any two (group.h). Step
// 0 puts the call's record beside what the rank gives, and is the only one that knows nothing of the others' calls:
// they are compared before the next. On one host the fragments of a long message follow each other through the steps,
// so that a step does one thing for each of several fragments. With several hosts each fragment goes through all its
// stages before the next begins; in some stages only the leaders work: they exchange with each other. collective.h runs
// the plans.
#pragma once
#include "comm/processes/group.h"
#include "comm/processes/shared_file.h"
#include "comm/processes/transport.h"
#include "comm/processes/wide_sum.h"

namespace lockstep::processes {

// With several hosts every step waits for all: one half of the slots will do.
inline constexpr std::uint64_t kHalf = 0;

// What a process's plans share.
struct PlanContext {
  Transport& transport;
  WideSum& wide_sum;
  SharedFiles* files;       // null where processes cannot see each other's
  std::int64_t least_seen;  // bytes of a message that may go without slots
};

// The messages of one stage between leaders. The window says of each other host whether its messages are awaited.
class Exchange {
 public:
  Exchange(ProcessGroup& group, Transport& transport) : group_(group), transport_(transport) {}
  void send(int host, const void* data, std::int64_t bytes);
  void receive(int host, void* data, std::int64_t bytes);
  // Sends off what was added, once; whether all has come and gone.
  bool done();
  bool under_way() const { return under_way_; }

 private:
  struct HostTransfers {  // with one host
    std::vector<Transfer> transfers;
    std::shared_ptr<Completion> completion;
  };
  void add(Transfer::Way way, int host, void* data, std::int64_t bytes);
  ProcessGroup& group_;
  Transport& transport_;
  std::vector<HostTransfers> by_host_;  // by host
  bool under_way_ = false;
};

class CollectivePlan {
 public:
  CollectivePlan(ProcessGroup& group, const Message& message, PlanContext context)
      : group_(group), message_(message), context_(context), exchange_(group, context.transport) {}
  virtual ~CollectivePlan() = default;

  // Known once the calls have been compared.
  virtual std::int64_t steps() const = 0;
  // The step's own work after `phase` is complete and before the next; whether it is done, or must be run again.
  virtual bool run(std::int64_t step, std::uint64_t phase) = 0;
  virtual bool more() const { return false; }  // operation.h
  virtual bool held() const { return false; }  // operation.h
  // Other ranks that a step waits for without a barrier.
  virtual std::vector<int> at_work() const { return {}; }
  // The calls of all ranks are of one operation, and these.
  virtual void set_records(const std::vector<const char*>& /*records*/) {}

  // With several hosts: steps before the first stage, in which the leaders exchange the records.
  static constexpr std::int64_t kPrelude = 2;

 protected:
  int ranks() const { return group_.size(); }
  const char* in() const { return static_cast<const char*>(message_.in.raw()); }
  char* out() const { return static_cast<char*>(message_.out.raw()); }
  // Where this rank finds what `rank` has put before that phase: in its slot, or, from another host, in the inbox.
  const char* put_by(int rank, std::uint64_t phase) const {
    const Placement& placement = group_.placement;
    return placement.here(rank) ? group_.window->slot(phase, placement.local_rank(rank)) : group_.window->inbox(rank);
  }
  char* own_slot(std::uint64_t phase) const { return group_.window->slot(phase, group_.local_rank()); }

  ProcessGroup& group_;
  const Message& message_;
  PlanContext context_;
  Exchange exchange_;
};

// The plan of a call; the message must outlive it.
std::unique_ptr<CollectivePlan> make_plan(ProcessGroup& group, const Message& message, PlanContext context);

}  // namespace lockstep::processes
