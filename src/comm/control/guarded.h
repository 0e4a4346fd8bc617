// A communicator of processes whose waits end, and say who failed and why (docs/design.md, rule 7).
//
// It wraps any backend and reports every call to the coordinator (comm/control/session.h). So calls that do not match
// are found though the backend does not compare them, and wait() throws CommError as soon as any rank of the world is
// known to have failed or to be gone. When the deadline has passed since an operation was first tested or waited for,
// it asks who has not come and ends the epoch with that message on all ranks. Where the backend itself fails, the
// session has a moment to report the cause, of which the backend's error may be only a consequence.
//
// After a failure the whole world is of no further use, not only the group: every call of every rank throws the same
// message, and ranks begin anew in the next epoch. A rank that drops an operation before it is done, or a group that
// others wait in, fails the others, but not while an exception unwinds it: then whoever catches it says why
// (Session::fail), or the session ends without leave(). Cost of a call: two records queued, under one mutex. A group of
// one reports nothing.
#pragma once
#include "comm/communicator.h"
#include "comm/control/session.h"
#include "comm/sequence.h"

namespace lockstep {

class Guarded final : public Communicator {
 public:
  // The inner one is of the whole world: its ranks are the session's. The session outlives this, and every group split
  // from it. Several (of two backends, say) may share a session; all ranks make them in the same order.
  Guarded(std::unique_ptr<Communicator> inner, control::Session& session, double deadline_seconds = 30);
  ~Guarded() override;

  Started start(const Message& message) override;
  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override;
  void check() override {
    session_.check();
    inner_->check();
  }
  std::unique_ptr<Memory> memory(Ledger& ledger) override { return inner_->memory(ledger); }

 private:
  Guarded(std::unique_ptr<Communicator> inner, control::Session& session, double deadline_seconds, std::string key,
          std::vector<int> members);

  std::unique_ptr<Communicator> inner_;
  control::Session& session_;
  double deadline_;
  std::string key_;           // of the group: which world, then which division and color
  std::vector<int> members_;  // ranks of the world
  std::uint32_t group_ = 0;   // the session's number of it
  int divisions_ = 0;
  Sequence sequence_;
};

}  // namespace lockstep
