// The stream of `meta`: it does nothing and counts what would have been done.
#pragma once
#include "base/error.h"
#include "tensor/memory.h"
#include "tensor/meta/kernel.h"
#include "tensor/stream.h"

namespace lockstep::meta {

class Stream final : public lockstep::Stream {
 public:
  Stream() : lockstep::Stream(Device::meta) {}
  // One that holds the reserve that the device it stands for would take for its stream's scratch.
  Stream(Memory& memory, std::int64_t scratch_bytes)
      : lockstep::Stream(Device::meta), scratch_(memory.allocate(scratch_bytes, Tag::workspace)) {}

  Work& work() { return work_; }
  void add(const Kernel& kernel) {
    work_.flops += kernel.flops;
    work_.bytes_read += kernel.read;
    work_.bytes_written += kernel.written;
    if (kernel.is_product()) {
      work_.matmul_flops += kernel.flops;
      work_.matmul_bytes += kernel.read + kernel.written;
    }
    ++work_.calls;
    if (prices_) work_.seconds += prices_->seconds(kernel);
  }
  // From now on; null: kernels have no price. It outlives the stream, or the last call before another.
  void price_by(const KernelPricer* prices) { prices_ = prices; }

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
  const KernelPricer* prices_ = nullptr;
  Buffer scratch_;
};

}  // namespace lockstep::meta
