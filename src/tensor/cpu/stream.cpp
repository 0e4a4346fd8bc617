#include "tensor/cpu/stream.h"

#include "tensor/cpu/queue.h"

namespace lockstep::cpu {

Stream::Stream(Memory& memory, int threads)
    : lockstep::Stream(Device::cpu),
      workers_(threads),
      scratch_(memory.allocate(threads * kScratchBytes, Tag::workspace)) {}

Stream& Stream::of(lockstep::Stream& stream) {
  auto* self = dynamic_cast<Stream*>(&stream);
  LOCKSTEP_CHECK(self, "a kernel of the cpu was given a stream that does not compute there ({})",
                 name_of(stream.device()));
  return *self;
}

std::unique_ptr<Event> Stream::make_event() { return std::make_unique<QueuePoint>(); }

void Stream::record(Event& event) { static_cast<QueuePoint&>(event).set(nullptr, 0); }

}  // namespace lockstep::cpu
