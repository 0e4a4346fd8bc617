// A communicator that notes when each message of its rank begins and ends, while somebody traces.
//
// It wraps any backend; the groups split from it note into the same list. Both ends of a message, and all ranks of a
// collective, can be found by what is noted of it: the group's key, the op and the number. A message begins when it is
// started and ends when its rank has waited for it, or has asked and was told that it is done. Where ranks compute in
// streams that run ahead, the trace may be given a marker of the compute stream: then messages of the device begin and
// end where that stream does. Messages of a group of one are none. While nobody traces, a message passes as it is.
//
// Used by the thread of its rank alone. All ranks begin to trace at the same point of their program, with no message
// under way that another rank has not begun.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/sequence.h"

namespace lockstep {

struct TracedMessage {
  std::string group;  // its name
  std::string key;    // of the group: the same on all its ranks, and no other group's
  CommOp op = CommOp::barrier;
  std::uint64_t number = 0;  // of the operation in its group, since tracing began (comm/sequence.h)
  int ranks = 0;             // of the group
  int peer = -1;             // the other end, or the root, as a rank of the world; -1: it has none
  std::int64_t bytes = 0;    // that it is about
  std::int64_t step = 0;
  bool marked = false;  // the times are marks
  double begin = 0;     // seconds of the rank's steady clock
  double end = -1;      // -1: not yet
};

class MessageTrace {
 public:
  bool on() const { return on_; }
  // `mark`: marks the compute stream, and gives a number, from 0 on, by which the time is found later; none: messages
  // have the host's times, also those of a device.
  void start(std::function<double()> mark = {});
  void set_step(std::int64_t step) { step_ = step; }
  // What was noted; nothing is noted from then on.
  std::vector<TracedMessage> finish();

  std::size_t begin(TracedMessage message, Device device);
  void end(std::size_t number);

 private:
  double now(bool marked) const;

  bool on_ = false;
  std::function<double()> mark_;
  std::int64_t step_ = 0;
  std::vector<TracedMessage> messages_;
};

class Traced final : public Communicator {
 public:
  // The trace outlives this, every group split from it and their Pendings; so does a communicator that is not owned.
  // `key` tells worlds apart that have the same ranks.
  Traced(Communicator& inner, MessageTrace& trace, const std::string& key);
  Traced(std::unique_ptr<Communicator> inner, MessageTrace& trace, const std::string& key);

  Started start(const Message& message) override;
  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override;
  void check() override { inner_.check(); }
  std::unique_ptr<Memory> memory(Ledger& ledger) override { return inner_.memory(ledger); }

 private:
  Traced(std::unique_ptr<Communicator> inner, MessageTrace& trace, std::string key, std::vector<int> members);

  std::unique_ptr<Communicator> owned_;
  Communicator& inner_;
  MessageTrace& trace_;
  const std::string key_;
  const std::vector<int> members_;  // as ranks of the world
  int splits_ = 0;
  Sequence sequence_;  // of what is traced
};

}  // namespace lockstep
