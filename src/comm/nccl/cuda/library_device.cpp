// NCCL, opened by name as cuBLASLt and cuDNN are (kernels/cuda/cublas_lt.h says why): the program starts without it.
// The functions are those of nccl.h; where that is not installed beside the toolkit, the backend says so.
#include <cuda_runtime.h>

#include <cstdlib>

#include "comm/nccl/link.h"
#include "kernels/row_codes.h"
#include "tensor/cuda/device.h"

#if __has_include(<nccl.h>)
#include <dlfcn.h>
#include <nccl.h>

#include <chrono>
#include <cstring>
#include <thread>

namespace lockstep::nccl {

namespace {

struct Api {
  decltype(&ncclGetVersion) version;
  decltype(&ncclGetUniqueId) unique_id;
  decltype(&ncclCommInitRankConfig) init;
  decltype(&ncclCommFinalize) finalize;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclCommGetAsyncError) state;
  decltype(&ncclGetErrorString) error_string;
  decltype(&ncclGetLastError) last_error;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) recv;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclReduce) reduce;
};

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function)
    throw EnvironmentError(
        fmt::format("NCCL has no {} ({}); install NCCL {}.{} or later", name, dlerror(), NCCL_MAJOR, NCCL_MINOR));
}

Api open_api() {
  const std::string versioned = "libnccl.so." + std::to_string(NCCL_MAJOR);
  void* library = dlopen(versioned.c_str(), RTLD_NOW | RTLD_LOCAL);
  for (const char* folder : {"/usr/local/cuda/lib64/", "/usr/lib/x86_64-linux-gnu/"})
    if (!library) library = dlopen((folder + versioned).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    throw EnvironmentError(
        fmt::format("{}, which ranks with a GPU each need, is not found ({}); install NCCL {}, or add its folder to "
                    "LD_LIBRARY_PATH",
                    versioned, dlerror(), NCCL_MAJOR));
  Api api{};
  find(library, "ncclGetVersion", api.version);
  find(library, "ncclGetUniqueId", api.unique_id);
  find(library, "ncclCommInitRankConfig", api.init);
  find(library, "ncclCommFinalize", api.finalize);
  find(library, "ncclCommDestroy", api.destroy);
  find(library, "ncclCommAbort", api.abort);
  find(library, "ncclCommGetAsyncError", api.state);
  find(library, "ncclGetErrorString", api.error_string);
  find(library, "ncclGetLastError", api.last_error);
  find(library, "ncclGroupStart", api.group_start);
  find(library, "ncclGroupEnd", api.group_end);
  find(library, "ncclSend", api.send);
  find(library, "ncclRecv", api.recv);
  find(library, "ncclAllGather", api.all_gather);
  find(library, "ncclBroadcast", api.broadcast);
  find(library, "ncclAllReduce", api.all_reduce);
  find(library, "ncclReduceScatter", api.reduce_scatter);
  find(library, "ncclReduce", api.reduce);
  int version = 0;
  if (api.version(&version) != ncclSuccess || version < NCCL_VERSION(2, 18, 1))
    throw EnvironmentError(
        fmt::format("{} is of version {}, 2.18.1 or later is needed; install a newer NCCL", versioned, version));
  return api;
}

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return ncclFloat64;
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f16:
      return ncclFloat16;
    case DType::i32:
      return ncclInt32;
    case DType::i64:
      return ncclInt64;
    case DType::f8e4m3:
    case DType::f8e5m2:
      break;  // nobody sends them
  }
  LOCKSTEP_CHECK(false, "type {}", static_cast<int>(dtype));
}

ncclRedOp_t reduction_of(Reduction reduction) {
  return reduction == Reduction::sum ? ncclSum : reduction == Reduction::mean ? ncclAvg : ncclMax;
}

cudaStream_t native(Stream& stream) { return static_cast<cudaStream_t>(cuda::Stream::of(stream).native()); }
std::size_t count(const ConstTensor& t) { return static_cast<std::size_t>(t.elements()); }

class NcclLink final : public Link {
 public:
  NcclLink(const Api& api, const LinkSpec& spec) : api_(api), name_(spec.name), deadline_(spec.deadline_seconds) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.commName = name_.c_str();
    ncclUniqueId id;
    static_assert(sizeof(id) == sizeof(spec.id));
    std::memcpy(&id, spec.id.data(), sizeof(id));
    check(api_.init(&comm_, spec.ranks, id, spec.rank, &config), "ncclCommInitRankConfig");
  }

  // Finalizing sends off what is still on its way to others; it takes all ranks, so it has a deadline.
  ~NcclLink() override {
    if (!comm_) return;
    ncclResult_t state = api_.finalize(comm_);
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(deadline_);
    while (state == ncclInProgress && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      if (api_.state(comm_, &state) != ncclSuccess) state = ncclInternalError;
    }
    if (state == ncclSuccess)
      api_.destroy(comm_);
    else
      api_.abort(comm_);
  }

  bool settled() override {
    ncclResult_t state = ncclSuccess;
    check(api_.state(comm_, &state), "ncclCommGetAsyncError");
    if (state == ncclInProgress) return false;
    check(state, "what it does");
    return true;
  }

  void begin_group() override { check(api_.group_start(), "ncclGroupStart"); }
  void end_group() override { check(api_.group_end(), "ncclGroupEnd"); }
  void send(const ConstTensor& x, int to, Stream& stream) override {
    check(api_.send(x.raw(), count(x), type_of(x.dtype()), to, comm_, native(stream)), "ncclSend");
  }
  void recv(const Tensor& x, int from, Stream& stream) override {
    check(api_.recv(x.raw(), count(x), type_of(x.dtype()), from, comm_, native(stream)), "ncclRecv");
  }
  void all_gather(const Tensor& out, const ConstTensor& in, Stream& stream) override {
    check(api_.all_gather(in.raw(), out.raw(), count(in), type_of(in.dtype()), comm_, native(stream)), "ncclAllGather");
  }
  void broadcast(const Tensor& out, const ConstTensor& in, int root, Stream& stream) override {
    check(api_.broadcast(in.raw(), out.raw(), count(in), type_of(in.dtype()), root, comm_, native(stream)),
          "ncclBroadcast");
  }
  void all_reduce(const Tensor& out, const ConstTensor& in, Reduction reduction, Stream& stream) override {
    check(api_.all_reduce(in.raw(), out.raw(), count(in), type_of(in.dtype()), reduction_of(reduction), comm_,
                          native(stream)),
          "ncclAllReduce");
  }
  void reduce_scatter(const Tensor& out, const ConstTensor& in, Reduction reduction, Stream& stream) override {
    check(api_.reduce_scatter(in.raw(), out.raw(), count(out), type_of(in.dtype()), reduction_of(reduction), comm_,
                              native(stream)),
          "ncclReduceScatter");
  }
  void reduce(const Tensor& out, const ConstTensor& in, Reduction reduction, int root, Stream& stream) override {
    check(api_.reduce(in.raw(), out.raw(), count(in), type_of(in.dtype()), reduction_of(reduction), root, comm_,
                      native(stream)),
          "ncclReduce");
  }

  void abort() noexcept override {
    if (comm_) api_.abort(comm_);
    comm_ = nullptr;
  }

 private:
  // A call that continues in the background has not failed so far: settled() tells how it ends.
  void check(ncclResult_t result, const char* call) const {
    if (result == ncclSuccess || result == ncclInProgress) return;
    const char* detail = api_.last_error(comm_);
    throw CommError(fmt::format("NCCL ('{}'): {} failed: {}{}{}; NCCL_DEBUG=INFO shows more", name_, call,
                                api_.error_string(result), detail && *detail ? ": " : "", detail ? detail : ""),
                    result == ncclRemoteError);
  }

  const Api& api_;
  std::string name_;  // NCCL may read it for as long as it likes
  double deadline_;
  ncclComm_t comm_ = nullptr;
};

class NcclLibrary final : public Library {
 public:
  NcclLibrary() : api_(open_api()) {
    cuda::check_cuda(cudaGetDevice(&gpu_), "cudaGetDevice");
    cuda::load_tree_sum();  // before any operation waits for another rank on the GPU
    cuda::load_row_codes();
  }

  Id make_id() override {
    ncclUniqueId id;
    if (const ncclResult_t result = api_.unique_id(&id); result != ncclSuccess)
      throw CommError(fmt::format("ncclGetUniqueId failed: {}: {}; NCCL_DEBUG=INFO shows more",
                                  api_.error_string(result), api_.last_error(nullptr)));
    Id bytes;
    std::memcpy(bytes.data(), &id, sizeof(id));
    return bytes;
  }
  std::unique_ptr<Link> connect(const LinkSpec& spec) override { return std::make_unique<NcclLink>(api_, spec); }
  void enter_thread() override { cuda::check_cuda(cudaSetDevice(gpu_), "cudaSetDevice"); }

 private:
  Api api_;
  int gpu_ = 0;
};

}  // namespace

std::unique_ptr<Library> open_library() { return std::make_unique<NcclLibrary>(); }

}  // namespace lockstep::nccl

#else

namespace lockstep::nccl {
std::unique_ptr<Library> open_library() {
  throw EnvironmentError(
      "this program was built without NCCL's header; install NCCL's development files and build "
      "again, or run the ranks as threads of one process");
}
}  // namespace lockstep::nccl

#endif

namespace lockstep::nccl {

int choose_gpu(std::optional<int> number) {
  const int gpus = cuda::gpu_count();
  const char* local = std::getenv("LOCAL_RANK");
  int gpu = number.value_or(0);
  if (!number && local) {
    char* end = nullptr;
    const long value = std::strtol(local, &end, 10);
    if (end == local || *end || value < 0 || value > 1'000'000)
      throw UserError(ExitCode::usage, fmt::format("LOCAL_RANK is '{}'", local),
                      "it is a number from 0, set by the launcher");
    gpu = static_cast<int>(value);
  }
  if (gpu < 0 || gpu >= gpus)
    throw UserError(ExitCode::usage, fmt::format("GPU {} for this rank, and this process can use {}", gpu, gpus),
                    "start no more ranks on a machine than it has GPUs");
  cuda::check_cuda(cudaSetDevice(gpu), "cudaSetDevice");
  return gpu;
}

}  // namespace lockstep::nccl
