// The compute stream of the cpu: kernels run inline, on its workers, with its scratch.
//
// Scratch is a fixed reserve for each worker (converted tiles, partial results), taken once and counted as workspace:
// no kernel allocates. Its size is a promise of this header, so that `meta` can reserve the same.
#pragma once
#include "base/error.h"
#include "tensor/cpu/workers.h"
#include "tensor/memory.h"
#include "tensor/stream.h"

namespace lockstep::cpu {

inline constexpr std::int64_t kScratchBytes = 4 << 20;  // for each worker

class Stream final : public lockstep::Stream {
 public:
  // The memory outlives the stream.
  Stream(Memory& memory, int threads);

  Workers& workers() { return workers_; }
  void* scratch(int worker) const { return static_cast<char*>(scratch_.data()) + worker * kScratchBytes; }

  std::unique_ptr<Event> make_event() override;
  void record(Event&) override {}
  void wait(Event& event) override { event.wait(); }
  void synchronize() override {}

  static Stream& of(lockstep::Stream& stream);  // the stream must be one

 private:
  Workers workers_;
  Buffer scratch_;
};

}  // namespace lockstep::cpu
