// Replaces the GPU in a build without the CUDA toolkit: there is none, and asking for it says why.
#include "base/error.h"
#include "tensor/cuda/device.h"
#include "tensor/cuda/gpu_in_use.h"
#include "tensor/cuda/pinned_memory.h"
#include "tensor/host_call.h"
#include "tensor/side_stream.h"

namespace lockstep::cuda {

namespace {
[[noreturn]] void refuse() {
  throw EnvironmentError("this build has no CUDA; install the CUDA toolkit and build again with cmake --preset cuda");
}
}  // namespace

int gpu_count() { return 0; }
int gpu_in_use() { refuse(); }
void use_gpu(int) { refuse(); }
std::string gpu_name() { refuse(); }
std::int64_t free_bytes() { refuse(); }
std::string gpu_bus_id() { refuse(); }
std::int64_t used_bytes() { refuse(); }
void require_fp8() { refuse(); }
void check_cuda(int, const char*) {}
void* take_pinned(std::int64_t) { refuse(); }
void give_back_pinned(void*) noexcept {}

DeviceMemory::DeviceMemory(Ledger& ledger, std::int64_t) : Memory(Device::cuda, ledger) { refuse(); }
DeviceMemory::~DeviceMemory() = default;
void* DeviceMemory::take(std::int64_t) { return nullptr; }
void DeviceMemory::give_back(void*, std::int64_t) noexcept {}

void* PinnedMemory::take(std::int64_t) { refuse(); }
void PinnedMemory::give_back(void*, std::int64_t) noexcept {}

Stream::Stream(Memory&) : lockstep::Stream(Device::cuda) { refuse(); }
Stream::~Stream() = default;
std::unique_ptr<Event> Stream::make_event() { refuse(); }
std::unique_ptr<Event> Stream::make_timed_event() { refuse(); }
double Stream::seconds_between(Event&, Event&) { refuse(); }
void Stream::record(Event&) { refuse(); }
void Stream::wait(Event&) { refuse(); }
void Stream::synchronize() { refuse(); }
std::unique_ptr<Replay> Stream::capture(const std::function<void()>&) { refuse(); }
void Stream::begin_range(const char*) {}
void Stream::end_range() {}
Stream& Stream::of(lockstep::Stream&) { refuse(); }

void upload_later(void*, const void*, const CopiedRows&, lockstep::Stream&) { refuse(); }
void download_later(void*, const void*, const CopiedRows&, lockstep::Stream&) { refuse(); }
void copy_rows_later(void*, const void*, std::int64_t, std::int64_t, std::int64_t, lockstep::Stream&) { refuse(); }
void copy_later(void*, const void*, std::int64_t, lockstep::Stream&) { refuse(); }
void call_later(std::function<void()>, lockstep::Stream&) { refuse(); }

}  // namespace lockstep::cuda
