// Runs the operations of one group of thread ranks in a stream, for ranks that compute in streams of one device.
//
// The plan of an operation (threads/buffer_plan.h) goes to a stream of the group's own instead of to the threads that
// wait. It begins when every rank's compute stream has reached that rank's call, and runs beside what the ranks
// compute. Operations of a group run one after the other. Sums are those of kernels/tree_sum.h, so they equal the cpu's
// bit for bit. Thread-safe. Failure: EnvironmentError of the device's call.
#pragma once
#include <memory>
#include <mutex>
#include <span>

#include "comm/threads/buffer_plan.h"
#include "tensor/side_stream.h"

namespace lockstep::threads {

class GroupStream {
 public:
  explicit GroupStream(Device device) : side_(device) {}

  Device device() { return side_.stream().device(); }
  // Gives the plan to the stream, behind all of `ready`, and returns at once. The event is reached when it is done.
  std::shared_ptr<Event> run(const BufferPlan& plan, std::span<Event* const> ready);

 private:
  std::mutex mutex_;
  SideStream side_;
};

}  // namespace lockstep::threads
