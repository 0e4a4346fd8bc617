// The stream of `meta`: it does nothing and counts what would have been done.
#pragma once
#include "base/error.h"
#include "tensor/memory.h"
#include "tensor/stream.h"

namespace lockstep::meta {

// What kernels did: floating-point operations, and bytes each kernel must read and write once.
struct Work {
  std::int64_t flops = 0;
  std::int64_t matmul_flops = 0;  // the part of `flops` that is matrix products, attention's included
  std::int64_t bytes_read = 0;
  std::int64_t bytes_written = 0;
  std::int64_t matmul_bytes = 0;  // the part of both that matrix products and attention read and write
  std::int64_t calls = 0;
  bool operator==(const Work&) const = default;
};

class Stream final : public lockstep::Stream {
 public:
  Stream() : lockstep::Stream(Device::meta) {}
  // One that holds the reserve that the device it stands for would take for its stream's scratch.
  Stream(Memory& memory, std::int64_t scratch_bytes)
      : lockstep::Stream(Device::meta), scratch_(memory.allocate(scratch_bytes, Tag::workspace)) {}

  Work& work() { return work_; }

  std::unique_ptr<Event> make_event() override { return std::make_unique<Always>(); }
  void record(Event&) override {}
  void wait(Event&) override {}
  void synchronize() override {}

  static Stream& of(lockstep::Stream& stream) {
    LOCKSTEP_CHECK(stream.device() == Device::meta, "a {} stream where a meta stream is needed",
                   name_of(stream.device()));
    return static_cast<Stream&>(stream);
  }

 private:
  struct Always final : Event {
    bool done() override { return true; }
    void wait() override {}
  };
  Work work_;
  Buffer scratch_;
};

}  // namespace lockstep::meta
