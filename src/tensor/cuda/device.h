// The GPU as a device of tensors: its memory, its streams and events, and copies to and from the host.
//
// Compiled where the CUDA toolkit is found (LOCKSTEP_CUDA). Failure: EnvironmentError with the call that failed and
// what CUDA said of it.
#pragma once
#include <memory>

#include "tensor/memory.h"
#include "tensor/stream.h"

namespace lockstep::cuda {

// How many GPUs this process can use; 0, never an error, when there is no driver or no GPU.
int gpu_count();

class DeviceMemory final : public Memory {
 public:
  explicit DeviceMemory(Ledger& ledger);

 private:
  void* take(std::int64_t bytes) override;
  void give_back(void* data, std::int64_t bytes) noexcept override;
};

class Stream final : public lockstep::Stream {
 public:
  Stream();
  ~Stream() override;

  std::unique_ptr<Event> make_event() override;
  void record(Event& event) override;
  void wait(Event& event) override;
  void synchronize() override;

  void* native() const { return stream_; }  // a cudaStream_t
  static Stream& of(lockstep::Stream& stream);

 private:
  void* stream_ = nullptr;
};

void upload(void* to, const void* from, std::int64_t bytes, lockstep::Stream& stream);
void download(void* to, const void* from, std::int64_t bytes, lockstep::Stream& stream);

}  // namespace lockstep::cuda
