#include <cuda_runtime.h>

#include "tensor/cuda/device.h"
#include "tensor/side_stream.h"

namespace lockstep::cuda {

void copy_later(void* to, const void* from, std::int64_t bytes, lockstep::Stream& stream) {
  check_cuda(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice,
                             static_cast<cudaStream_t>(Stream::of(stream).native())),
             "cudaMemcpyAsync on the GPU");
}

}  // namespace lockstep::cuda
