#include "tensor/host_call.h"

#include <cuda_runtime.h>

#include <memory>
#include <utility>

#include "tensor/cuda/device.h"

namespace lockstep::cuda {

namespace {
using Call = std::function<void()>;
void make_call(void* call) {
  const std::unique_ptr<Call> owned(static_cast<Call*>(call));
  (*owned)();
}
}  // namespace

void call_later(std::function<void()> call, lockstep::Stream& stream) {
  auto owned = std::make_unique<Call>(std::move(call));
  check_cuda(cudaLaunchHostFunc(static_cast<cudaStream_t>(Stream::of(stream).native()), make_call, owned.get()),
             "cudaLaunchHostFunc");
  (void)owned.release();  // the call's own now
}

}  // namespace lockstep::cuda
