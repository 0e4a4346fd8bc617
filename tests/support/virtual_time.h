// Ranks on a fake clock: each has its own time, which moves when it says that it has worked, and to the time of a
// message when it has waited for one that came later.
//
// Everything runs for real, on threads that may be held up by anything; what is measured is what was said. A message
// takes a given time from when it was sent; an operation of a group is over, for all, when the last of them came to it.
#pragma once
#include <algorithm>

#include "comm/communicator.h"

namespace lockstep::tests {

class FakeClock {
 public:
  explicit FakeClock(double message_time = 0) : message_time_(message_time) {}
  double now() const { return now_; }
  double message_time() const { return message_time_; }
  void work(double time) { now_ += time; }
  void wait_until(double time) { now_ = std::max(now_, time); }

 private:
  double now_ = 0, message_time_;
};

class OnFakeClock final : public Communicator {
 public:
  // The clock is this rank's, and outlives this and every group split from it.
  OnFakeClock(std::unique_ptr<Communicator> inner, FakeClock& clock);

  Started start(const Message& message) override;
  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override;

 private:
  std::unique_ptr<Communicator> inner_;
  FakeClock& clock_;
};

}  // namespace lockstep::tests
