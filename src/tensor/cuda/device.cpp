#include "tensor/cuda/device.h"

#include <cuda_runtime_api.h>

#include "base/error.h"

namespace lockstep::cuda {

namespace {

void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess)
    throw EnvironmentError(
        fmt::format("{} failed: {} ({})", call, cudaGetErrorString(status), cudaGetErrorName(status)));
}

cudaStream_t native(lockstep::Stream& stream) { return static_cast<cudaStream_t>(Stream::of(stream).native()); }

class Point final : public Event {
 public:
  Point() { check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate"); }
  ~Point() override { cudaEventDestroy(event); }
  bool done() override {
    const cudaError_t status = cudaEventQuery(event);
    if (status == cudaErrorNotReady) return false;
    check(status, "cudaEventQuery");
    return true;
  }
  void wait() override { check(cudaEventSynchronize(event), "cudaEventSynchronize"); }
  cudaEvent_t event = nullptr;
};

}  // namespace

void check_cuda(int status, const char* call) { check(static_cast<cudaError_t>(status), call); }

int gpu_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();  // or the next call would report it
    return 0;
  }
  return count;
}

std::string gpu_name() {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  return properties.name;
}

std::int64_t free_bytes() {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return static_cast<std::int64_t>(free);
}

DeviceMemory::DeviceMemory(Ledger& ledger) : Memory(Device::cuda, ledger) {
  if (gpu_count() == 0)
    throw EnvironmentError("no CUDA GPU: the driver is missing or sees none; run on the cpu, or on a machine with one");
}

void* DeviceMemory::take(std::int64_t bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, static_cast<std::size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;  // Memory says what asked for it
  }
  check(status, "cudaMalloc");
  return data;
}

void DeviceMemory::give_back(void* data, std::int64_t) noexcept { cudaFree(data); }

Stream::Stream(Memory& memory)
    : lockstep::Stream(Device::cuda), scratch_(memory.allocate(kScratchBytes, Tag::workspace)) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  stream_ = stream;
}

Stream::~Stream() {
  cudaStreamSynchronize(static_cast<cudaStream_t>(stream_));
  library_.reset();
  cudaStreamDestroy(static_cast<cudaStream_t>(stream_));
}

Stream& Stream::of(lockstep::Stream& stream) {
  LOCKSTEP_CHECK(stream.device() == Device::cuda, "a {} stream where a cuda stream is needed",
                 name_of(stream.device()));
  return static_cast<Stream&>(stream);
}

std::unique_ptr<Event> Stream::make_event() { return std::make_unique<Point>(); }

void Stream::record(Event& event) {
  check(cudaEventRecord(static_cast<Point&>(event).event, static_cast<cudaStream_t>(stream_)), "cudaEventRecord");
}

void Stream::wait(Event& event) {
  check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream_), static_cast<Point&>(event).event, 0),
        "cudaStreamWaitEvent");
}

void Stream::synchronize() {
  check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream_)), "cudaStreamSynchronize");
}

void upload(void* to, const void* from, std::int64_t bytes, lockstep::Stream& stream) {
  check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, native(stream)),
        "cudaMemcpyAsync to the GPU");
  stream.synchronize();
}

void download(void* to, const void* from, std::int64_t bytes, lockstep::Stream& stream) {
  check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost, native(stream)),
        "cudaMemcpyAsync from the GPU");
  stream.synchronize();
}

}  // namespace lockstep::cuda
