// The GPU as a device of tensors: its memory, its streams and events, and copies to and from the host.
//
// Compiled where the CUDA toolkit is found (LOCKSTEP_CUDA). Failure: EnvironmentError with the call that failed and
// what CUDA said of it.
#pragma once
#include <array>
#include <memory>

#include "tensor/memory.h"
#include "tensor/ranges.h"
#include "tensor/stream.h"

namespace lockstep::cuda {

// EnvironmentError with the call and what CUDA says of the status (a cudaError_t), unless it is success.
void check_cuda(int status, const char* call);
// Of calls that give something back, where nothing can be thrown: a line on stderr, and the failure is not taken for
// that of the next kernel, which asks for the last error.
void given_back(int status, const char* call) noexcept;

// How many GPUs this process can use; 0, never an error, when there is no driver or no GPU.
int gpu_count();
std::string gpu_name();     // of the GPU in use
std::string gpu_bus_id();   // of the GPU in use, as in "0000:1B:00.0"
std::int64_t free_bytes();  // of its memory, now
std::int64_t used_bytes();  // of its memory, now, by whomever
// Why code built for `targets` ("sm_90a compute_80 …", as nvcc names them) does not run on a GPU of this compute
// capability; empty when it does.
std::string no_code_for(int major, int minor, const std::string& targets);
// Why a GPU of this compute capability multiplies no FP8; empty when it does.
std::string no_fp8_on(int major, int minor);
void require_fp8();  // of the GPU in use: EnvironmentError where it multiplies none

// What the driver, the libraries' code and the graphs of a run take beside its buffers: an estimate from measurement
// (docs/cuda.md), which a run's report compares with what it finds.
inline constexpr std::int64_t kOutsideBytes = std::int64_t{640} << 20;

// Memory of the GPU. With an arena, all of it is taken from the driver at once, and buffers come from that: where the
// arena is as large as the run's plan, nothing can fail later for want of memory.
class DeviceMemory final : public Memory {
 public:
  explicit DeviceMemory(Ledger& ledger, std::int64_t arena_bytes = 0);  // 0: buffer by buffer
  ~DeviceMemory() override;

 private:
  void* take(std::int64_t bytes) override;
  void give_back(void* data, std::int64_t bytes) noexcept override;

  void* arena_ = nullptr;
  std::unique_ptr<Ranges> ranges_;  // of the arena
};

// Page-locked host memory, which copies can use while the host continues.
void* take_pinned(std::int64_t bytes);
void give_back_pinned(void* data) noexcept;

inline constexpr std::int64_t kScratchBytes = 64 << 20;  // of a stream, for libraries and kernels

// The libraries that keep something for a stream: a handle, plans.
enum class Library { cublas_lt, cudnn };
inline constexpr int kLibraries = 2;

class Stream final : public lockstep::Stream {
 public:
  // Takes its scratch from the memory, which outlives it.
  explicit Stream(Memory& memory);
  ~Stream() override;

  std::unique_ptr<Event> make_event() override;
  std::unique_ptr<Event> make_timed_event() override;
  double seconds_between(Event& first, Event& second) override;
  void record(Event& event) override;
  void wait(Event& event) override;
  void synchronize() override;
  bool runs_ahead() const override { return true; }
  std::unique_ptr<Replay> capture(const std::function<void()>& work) override;
  void begin_range(const char* name) override;
  void end_range() override;

  void* native() const { return stream_; }  // a cudaStream_t
  // A fixed reserve that the work of one call may use; calls of one stream follow each other, so they share it.
  void* scratch() const { return scratch_.data(); }
  // What a library keeps for this stream, made when first needed.
  std::shared_ptr<void>& kept_for(Library library) { return kept_[static_cast<int>(library)]; }
  static Stream& of(lockstep::Stream& stream);

 private:
  void* stream_ = nullptr;
  Buffer scratch_;
  std::array<std::shared_ptr<void>, kLibraries> kept_;
};

// In the stream's order, without waiting for it.
// Rows of bytes, which may be strided on the device and are adjacent on the host.
struct CopiedRows {
  std::int64_t rows, row_bytes, pitch_bytes;
};
void upload_later(void* to, const void* from, const CopiedRows& rows, lockstep::Stream& stream);
void download_later(void* to, const void* from, const CopiedRows& rows, lockstep::Stream& stream);

}  // namespace lockstep::cuda
