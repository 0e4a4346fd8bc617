// A communicator with a slow link: adds latency and limits bandwidth on top of any backend, by sleeping.
//
// Used by tests and benchmarks to prove overlap. A rank has one SimulatedLink, shared by all its groups, that carries
// one operation after the other. An operation takes the link's latency for each step of its algorithm, plus its bytes
// over the bandwidth (sent or received, whichever is more: both directions run at once). It begins when it is started
// and the one before has ended; it is done when that time has passed and the backend is done too. So a rank that
// computes in the meantime hides it, and one that waits at once does not. A message from one rank to another occupies
// the sender's link: the receiver is told when it will have arrived, however early it asked. (Both ranks' clocks are
// taken to be one: they are on one host.)
#pragma once
#include "comm/communicator.h"
#include "comm/wait_policy.h"

namespace lockstep {

// Used by one thread at a time.
class SimulatedLink {
 public:
  using Clock = waiting::Clock;

  SimulatedLink(double latency_seconds, double bytes_per_second) : latency_(latency_seconds), rate_(bytes_per_second) {}

  // How long a call occupies the link, in seconds.
  double seconds(const Message& message, int rank, int ranks) const;
  // Queues it after what the link carries now; the time at which it will have arrived.
  Clock::time_point carry(double seconds);
  // Seconds that were still to pass, in all, when the rank began to wait for what the link carried: what was not
  // hidden.
  double exposed() const { return exposed_; }
  void waited_for(Clock::time_point arrival);

 private:
  double latency_;
  double rate_;
  Clock::time_point free_at_ = Clock::time_point::min();
  double exposed_ = 0;
};

class Delayed final : public Communicator {
 public:
  // The link outlives this and every group split from it.
  Delayed(std::unique_ptr<Communicator> inner, SimulatedLink& link);

  Started start(const Message& message) override;
  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override;
  void check() override { inner_->check(); }
  std::unique_ptr<Memory> memory(Ledger& ledger) override { return inner_->memory(ledger); }

 private:
  std::unique_ptr<Communicator> inner_;
  SimulatedLink& link_;
};

}  // namespace lockstep
