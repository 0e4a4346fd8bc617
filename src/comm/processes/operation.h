// One call of this rank, advanced by whichever thread holds the engine.
#pragma once
#include "comm/failure_text.h"
#include "comm/processes/group.h"

namespace lockstep::processes {

class Operation {
 public:
  Operation(ProcessGroup& group, Message message, std::uint64_t sequence)
      : group_(group), message_(std::move(message)), sequence_(sequence) {}
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // Does all that can be done without waiting; whether it is done. Throws what ends the group.
  virtual bool advance() = 0;
  // Whether it can advance further at once: each step is small.
  virtual bool more() const { return false; }
  // Whether the next of its queue may begin.
  virtual bool lets_next() const { return false; }
  // Ranks of the group that it waits for; first those that have not called it at all.
  virtual std::vector<int> missing() const = 0;
  // Whether it must not be dropped before it is done, since the transport or another rank is at its tensors.
  virtual bool held() const { return false; }

  ProcessGroup& group() const { return group_; }
  const Message& message() const { return message_; }
  std::uint64_t sequence() const { return sequence_; }
  std::string title() const { return operation_title(sequence_, group_.name, message_, group_.size()); }

  // Written under the engine's lock.
  bool over = false;
  CommFailure failure = {};  // how it ended, where it did not end well

 private:
  ProcessGroup& group_;
  const Message message_;
  const std::uint64_t sequence_;
};

}  // namespace lockstep::processes
