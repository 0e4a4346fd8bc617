// A communicator whose waits end at a deadline, with the record of the last operations in the error message.
//
// It wraps any backend, also one whose own waits have no deadline: it tests done() with growing pauses of at most a
// millisecond (comm/wait_policy.h) until the deadline has passed since wait() was called. Every failure that ends a
// wait names the rank and its last operations. The groups split from it are watched too.
#pragma once
#include "comm/comm_log.h"
#include "comm/communicator.h"

namespace lockstep {

class Watchdog final : public Communicator {
 public:
  // The log, in which a Recorder inside or outside of this writes, outlives this.
  Watchdog(std::unique_ptr<Communicator> inner, const CommLog& log, double deadline_seconds = 30);

  Started start(const Message& message) override;
  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override;
  void check() override { inner_->check(); }
  std::unique_ptr<Memory> memory(Ledger& ledger) override { return inner_->memory(ledger); }

 private:
  std::unique_ptr<Communicator> inner_;
  const CommLog& log_;
  double deadline_;
};

}  // namespace lockstep
