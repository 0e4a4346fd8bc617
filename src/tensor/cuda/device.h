// The GPU as a device of tensors: its memory, its streams and events, and copies to and from the host.
//
// Compiled where the CUDA toolkit is found (LOCKSTEP_CUDA). Failure: EnvironmentError with the call that failed and
// what CUDA said of it.
#pragma once
#include <memory>

#include "tensor/memory.h"
#include "tensor/stream.h"

namespace lockstep::cuda {

// EnvironmentError with the call and what CUDA says of the status (a cudaError_t), unless it is success.
void check_cuda(int status, const char* call);

// How many GPUs this process can use; 0, never an error, when there is no driver or no GPU.
int gpu_count();
std::string gpu_name();     // of the GPU in use
std::int64_t free_bytes();  // of its memory, now

class DeviceMemory final : public Memory {
 public:
  explicit DeviceMemory(Ledger& ledger);

 private:
  void* take(std::int64_t bytes) override;
  void give_back(void* data, std::int64_t bytes) noexcept override;
};

inline constexpr std::int64_t kScratchBytes = 64 << 20;  // of a stream, for libraries and kernels

class Stream final : public lockstep::Stream {
 public:
  // Takes its scratch from the memory, which outlives it.
  explicit Stream(Memory& memory);
  ~Stream() override;

  std::unique_ptr<Event> make_event() override;
  void record(Event& event) override;
  void wait(Event& event) override;
  void synchronize() override;

  void* native() const { return stream_; }  // a cudaStream_t
  // A fixed reserve that the work of one call may use; calls of one stream follow each other, so they share it.
  void* scratch() const { return scratch_.data(); }
  // What a library keeps for this stream (cuBLASLt's handle and plans), made when first needed.
  std::shared_ptr<void>& library() { return library_; }
  static Stream& of(lockstep::Stream& stream);

 private:
  void* stream_ = nullptr;
  Buffer scratch_;
  std::shared_ptr<void> library_;
};

void upload(void* to, const void* from, std::int64_t bytes, lockstep::Stream& stream);
void download(void* to, const void* from, std::int64_t bytes, lockstep::Stream& stream);

}  // namespace lockstep::cuda
