#include "kernels/cuda/ceilings.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>

#include "tensor/cuda/device.h"

namespace lockstep::cuda {

double copy_bandwidth(Memory& memory, lockstep::Stream& stream) {
  constexpr std::int64_t kBytes = std::int64_t{2} << 30;
  constexpr int kRounds = 5, kCopies = 10;
  const Buffer from = memory.allocate(kBytes, Tag::workspace), to = memory.allocate(kBytes, Tag::workspace);
  const auto native = static_cast<cudaStream_t>(Stream::of(stream).native());
  check_cuda(cudaMemsetAsync(from.data(), 0x3c, kBytes, native), "cudaMemsetAsync");
  double best = 0;
  for (int round = 0; round <= kRounds; ++round) {
    stream.synchronize();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCopies; ++i)
      check_cuda(cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDeviceToDevice, native),
                 "cudaMemcpyAsync within the GPU");
    stream.synchronize();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (round > 0) best = std::max(best, 2.0 * kBytes * kCopies / seconds);  // the first touches the memory
  }
  return best;
}

}  // namespace lockstep::cuda
