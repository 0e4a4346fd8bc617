// A communicator with a slow link: latency and a bandwidth on top of any backend, by sleeping, to prove overlap.
//
// A rank has one Link, shared by all its groups, that carries one operation after the other. An operation takes the
// link's latency for each step of its algorithm and its bytes over the bandwidth (sent or received, whichever is more:
// both ways at once); it begins when it is started and the one before has ended, and is done when that time has passed
// and the backend is done too. So a rank that computes in the meantime hides it, and one that waits at once does not.
// A message from one rank to another is the sender's link's to carry: the receiver is told when it will have arrived,
// however early it asked. (Clocks of both ranks are taken to be one: they are of one host.)
#pragma once
#include <chrono>

#include "comm/communicator.h"

namespace lockstep {

// Used by one thread at a time.
class Link {
 public:
  using Clock = std::chrono::steady_clock;

  Link(double latency_seconds, double bytes_per_second) : latency_(latency_seconds), rate_(bytes_per_second) {}

  // How long a call occupies the link, in seconds.
  double seconds(const Message& message, int rank, int ranks) const;
  // Puts it behind what the link carries now, and gives the time at which it will have arrived.
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
  Delayed(std::unique_ptr<Communicator> inner, Link& link);

  Started start(const Message& message) override;
  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override;
  void check() override { inner_->check(); }
  std::unique_ptr<Memory> memory(Ledger& ledger) override { return inner_->memory(ledger); }

 private:
  std::unique_ptr<Communicator> inner_;
  Link& link_;
};

}  // namespace lockstep
