#include "tensor/cpu/stream.h"

namespace lockstep::cpu {

namespace {

// A point that has been passed: kernels have run when their call returns.
class PassedPoint final : public Event {
 public:
  bool done() override { return true; }
  void wait() override {}
};

}  // namespace

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

std::unique_ptr<Event> Stream::make_event() { return std::make_unique<PassedPoint>(); }

}  // namespace lockstep::cpu
