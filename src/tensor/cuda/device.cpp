#include "tensor/cuda/device.h"

#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include <cstdio>

#include "base/error.h"
#include "tensor/cuda/gpu_in_use.h"

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
  explicit Point(bool timed) {
    check(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming), "cudaEventCreate");
  }
  ~Point() override { given_back(cudaEventDestroy(event), "cudaEventDestroy"); }
  bool done() override {
    const cudaError_t status = cudaEventQuery(event);
    if (status == cudaErrorNotReady) return false;
    check(status, "cudaEventQuery");
    return true;
  }
  void wait() override { check(cudaEventSynchronize(event), "cudaEventSynchronize"); }
  cudaEvent_t event = nullptr;
};

class Graph final : public Replay {
 public:
  Graph(cudaGraph_t graph, cudaStream_t stream) : stream_(stream) {
    const cudaError_t status = cudaGraphInstantiate(&ready_, graph, 0);
    given_back(cudaGraphDestroy(graph), "cudaGraphDestroy");
    check(status, "cudaGraphInstantiate");
  }
  ~Graph() override { given_back(cudaGraphExecDestroy(ready_), "cudaGraphExecDestroy"); }
  void run() override { check(cudaGraphLaunch(ready_, stream_), "cudaGraphLaunch"); }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t ready_ = nullptr;
};

// Why there is no GPU, which gpu_count() does not say: what is missing.
std::string why_no_gpu() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  cudaGetLastError();
  return status == cudaSuccess ? "the driver sees none" : cudaGetErrorString(status);
}

// The calling thread's: a rank may have chosen another than the first.
cudaDeviceProp properties_of_current() {
  int gpu = 0;
  check(cudaGetDevice(&gpu), "cudaGetDevice");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, gpu), "cudaGetDeviceProperties");
  return properties;
}

}  // namespace

void check_cuda(int status, const char* call) { check(static_cast<cudaError_t>(status), call); }

void given_back(int status, const char* call) noexcept {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  std::fprintf(stderr, "lockstep: %s failed: %s\n", call, cudaGetErrorName(static_cast<cudaError_t>(status)));
}

int gpu_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();  // or the next call would report it
    return 0;
  }
  return count;
}

int gpu_in_use() {
  int gpu = 0;
  check(cudaGetDevice(&gpu), "cudaGetDevice");
  return gpu;
}

void use_gpu(int gpu) { check(cudaSetDevice(gpu), "cudaSetDevice"); }

std::string gpu_name() { return properties_of_current().name; }

std::int64_t free_bytes() {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return static_cast<std::int64_t>(free);
}

std::string gpu_bus_id() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  char id[32] = {};
  check(cudaDeviceGetPCIBusId(id, sizeof id, device), "cudaDeviceGetPCIBusId");
  return id;
}

std::int64_t used_bytes() {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return static_cast<std::int64_t>(total - free);
}

void require_fp8() {
  const cudaDeviceProp gpu = properties_of_current();
  if (const std::string reason = no_fp8_on(gpu.major, gpu.minor); !reason.empty())
    throw EnvironmentError(fmt::format("{}: {}", gpu.name, reason));
}

DeviceMemory::DeviceMemory(Ledger& ledger, std::int64_t arena_bytes) : Memory(Device::cuda, ledger) {
  if (gpu_count() == 0)
    throw EnvironmentError(
        fmt::format("no CUDA GPU: {}; run on the cpu, or on a machine with a GPU and its driver", why_no_gpu()));
  const cudaDeviceProp gpu = properties_of_current();
  if (const std::string reason = no_code_for(gpu.major, gpu.minor, LOCKSTEP_GPU_CODE); !reason.empty())
    throw EnvironmentError(fmt::format("{}: {}", gpu.name, reason));
  if (arena_bytes == 0) return;
  if (cudaMalloc(&arena_, static_cast<std::size_t>(arena_bytes)) != cudaSuccess) {
    cudaGetLastError();
    throw UserError(ExitCode::does_not_fit,
                    fmt::format("out of memory on {}: the run needs {} bytes in one piece and {} are free", gpu.name,
                                arena_bytes, free_bytes()),
                    "end what else uses the GPU, or see `lockstep plan` for settings that need less");
  }
  ranges_ = std::make_unique<Ranges>(arena_bytes);
}

DeviceMemory::~DeviceMemory() {
  if (arena_) given_back(cudaFree(arena_), "cudaFree");
}

void* DeviceMemory::take(std::int64_t bytes) {
  if (ranges_) {
    const std::int64_t offset = ranges_->take(bytes);
    return offset < 0 ? nullptr : static_cast<char*>(arena_) + offset;
  }
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, static_cast<std::size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;  // Memory says what asked for it
  }
  check(status, "cudaMalloc");
  return data;
}

void DeviceMemory::give_back(void* data, std::int64_t bytes) noexcept {
  if (ranges_)
    ranges_->give_back(static_cast<char*>(data) - static_cast<char*>(arena_), bytes);
  else
    given_back(cudaFree(data), "cudaFree");
}

void* take_pinned(std::int64_t bytes) {
  void* data = nullptr;
  check(cudaMallocHost(&data, static_cast<std::size_t>(bytes)), "cudaMallocHost");
  return data;
}

void give_back_pinned(void* data) noexcept { given_back(cudaFreeHost(data), "cudaFreeHost"); }

Stream::Stream(Memory& memory)
    : lockstep::Stream(Device::cuda), scratch_(memory.allocate(kScratchBytes, Tag::workspace)) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  stream_ = stream;
}

Stream::~Stream() {
  given_back(cudaStreamSynchronize(static_cast<cudaStream_t>(stream_)), "cudaStreamSynchronize");
  for (std::shared_ptr<void>& kept : kept_) kept.reset();
  given_back(cudaStreamDestroy(static_cast<cudaStream_t>(stream_)), "cudaStreamDestroy");
}

Stream& Stream::of(lockstep::Stream& stream) {
  LOCKSTEP_CHECK(stream.device() == Device::cuda, "a {} stream where a cuda stream is needed",
                 name_of(stream.device()));
  return static_cast<Stream&>(stream);
}

std::unique_ptr<Event> Stream::make_event() { return std::make_unique<Point>(false); }

std::unique_ptr<Event> Stream::make_timed_event() { return std::make_unique<Point>(true); }

double Stream::seconds_between(Event& first, Event& second) {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, static_cast<Point&>(first).event, static_cast<Point&>(second).event),
        "cudaEventElapsedTime");
  return milliseconds * 1e-3;
}

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

std::unique_ptr<Replay> Stream::capture(const std::function<void()>& work) {
  const auto stream = static_cast<cudaStream_t>(stream_);
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  cudaGraph_t graph = nullptr;
  try {
    work();
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);  // what was kept so far is useless; the stream must take work again
    if (graph) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  return std::make_unique<Graph>(graph, stream);
}

void Stream::begin_range(const char* name) { nvtxRangePushA(name); }
void Stream::end_range() { nvtxRangePop(); }

void upload_later(void* to, const void* from, const CopiedRows& r, lockstep::Stream& stream) {
  const auto row = static_cast<std::size_t>(r.row_bytes), pitch = static_cast<std::size_t>(r.pitch_bytes);
  check(r.rows == 1 ? cudaMemcpyAsync(to, from, row, cudaMemcpyHostToDevice, native(stream))
                    : cudaMemcpy2DAsync(to, pitch, from, row, row, static_cast<std::size_t>(r.rows),
                                        cudaMemcpyHostToDevice, native(stream)),
        "cudaMemcpyAsync to the GPU");
}

void download_later(void* to, const void* from, const CopiedRows& r, lockstep::Stream& stream) {
  const auto row = static_cast<std::size_t>(r.row_bytes), pitch = static_cast<std::size_t>(r.pitch_bytes);
  check(r.rows == 1 ? cudaMemcpyAsync(to, from, row, cudaMemcpyDeviceToHost, native(stream))
                    : cudaMemcpy2DAsync(to, row, from, pitch, row, static_cast<std::size_t>(r.rows),
                                        cudaMemcpyDeviceToHost, native(stream)),
        "cudaMemcpyAsync from the GPU");
}

}  // namespace lockstep::cuda
