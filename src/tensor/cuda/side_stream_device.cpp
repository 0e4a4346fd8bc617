#include <cuda_runtime.h>

#include "tensor/cuda/device.h"
#include "tensor/side_stream.h"

namespace lockstep::cuda {

void copy_later(void* to, const void* from, std::int64_t bytes, lockstep::Stream& stream) {
  check_cuda(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice,
                             static_cast<cudaStream_t>(Stream::of(stream).native())),
             "cudaMemcpyAsync on the GPU");
}

void copy_rows_later(void* to, const void* from, std::int64_t rows, std::int64_t row_bytes, std::int64_t pitch_bytes,
                     lockstep::Stream& stream) {
  const auto row = static_cast<std::size_t>(row_bytes);
  check_cuda(
      cudaMemcpy2DAsync(to, row, from, static_cast<std::size_t>(pitch_bytes), row, static_cast<std::size_t>(rows),
                        cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(Stream::of(stream).native())),
      "cudaMemcpy2DAsync on the GPU");
}

}  // namespace lockstep::cuda
