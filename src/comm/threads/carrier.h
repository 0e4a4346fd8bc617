// Runs the operations of one group of thread ranks in a stream: for ranks that compute in streams of one device.
//
// What an operation does is the plan of any other (threads/plan.h), given to a stream of the group's own instead of the
// threads that wait: it begins when every rank's compute stream has come to where that rank called, and runs beside
// what they do. Operations of a group go one after the other. Sums are those of kernels/tree_sum.h, so their bits are
// the cpu's. Thread-safe. Failure: EnvironmentError of the device's call.
#pragma once
#include <memory>
#include <mutex>
#include <span>

#include "comm/side_stream.h"
#include "comm/threads/plan.h"

namespace lockstep::threads {

class Carrier {
 public:
  explicit Carrier(Device device) : side_(device) {}

  Device device() { return side_.stream().device(); }
  // Gives the plan to the stream, behind all of `ready`, and returns at once. The event is reached when it is done.
  std::shared_ptr<Event> run(const Plan& plan, std::span<Event* const> ready);

 private:
  std::mutex mutex_;
  SideStream side_;
};

}  // namespace lockstep::threads
