// What stands in for the GPU in a build without the CUDA toolkit: there is none, and asking for it says why.
#include "base/error.h"
#include "tensor/cuda/device.h"

namespace lockstep::cuda {

namespace {
[[noreturn]] void refuse() {
  throw EnvironmentError("this build has no CUDA; install the CUDA toolkit and build again with cmake --preset cuda");
}
}  // namespace

int gpu_count() { return 0; }
std::string gpu_name() { refuse(); }
std::int64_t free_bytes() { refuse(); }
void check_cuda(int, const char*) {}

DeviceMemory::DeviceMemory(Ledger& ledger) : Memory(Device::cuda, ledger) { refuse(); }
void* DeviceMemory::take(std::int64_t) { return nullptr; }
void DeviceMemory::give_back(void*, std::int64_t) noexcept {}

Stream::Stream(Memory&) : lockstep::Stream(Device::cuda) { refuse(); }
Stream::~Stream() = default;
std::unique_ptr<Event> Stream::make_event() { refuse(); }
void Stream::record(Event&) { refuse(); }
void Stream::wait(Event&) { refuse(); }
void Stream::synchronize() { refuse(); }
Stream& Stream::of(lockstep::Stream&) { refuse(); }

void upload(void*, const void*, std::int64_t, lockstep::Stream&) { refuse(); }
void download(void*, const void*, std::int64_t, lockstep::Stream&) { refuse(); }

}  // namespace lockstep::cuda
