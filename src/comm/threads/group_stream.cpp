#include "comm/threads/group_stream.h"

namespace lockstep::threads {

std::shared_ptr<Event> GroupStream::run(const BufferPlan& plan, std::span<Event* const> ready) {
  const std::lock_guard lock(mutex_);
  Stream& stream = side_.stream();
  for (Event* event : ready) stream.wait(*event);
  for (const BufferPlan::Sum& sum : plan.sums())
    if (sum.ins[0].elements() > 0)
      tree_sum({.outs = sum.outs, .ins = sum.ins, .joins = sum.joins, .reduction = sum.reduction}, stream);
  for (const BufferPlan::Copy& copy : plan.copies())
    for (char* to : copy.to) copy_later(to, copy.from, copy.bytes, stream);
  std::shared_ptr<Event> done = stream.make_event();
  stream.record(*done);
  return done;
}

}  // namespace lockstep::threads
