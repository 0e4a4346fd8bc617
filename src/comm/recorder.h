// A communicator that writes every operation of its rank into a log (docs/design.md, rule 4).
//
// It wraps any backend, and the groups split from it are recorded in the same log. What is counted as sent is what the
// algorithm sends (comm/traffic.h), also where ranks share memory and nothing need be sent at all. The time that a
// caller is held in wait() is summed as well: where ranks compute in streams that run ahead, the host's, not theirs.
#pragma once
#include "comm/comm_log.h"
#include "comm/communicator.h"
#include "comm/sequence.h"

namespace lockstep {

class Recorder final : public Communicator {
 public:
  // The log outlives this and every group split from it.
  Recorder(std::unique_ptr<Communicator> inner, CommLog& log);

  Started start(const Message& message) override;
  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override;
  void check() override { inner_->check(); }
  std::unique_ptr<Memory> memory(Ledger& ledger) override { return inner_->memory(ledger); }

 private:
  std::unique_ptr<Communicator> inner_;
  CommLog& log_;
  Sequence sequence_;
};

}  // namespace lockstep
