#include "kernels/host_store.h"

#include <algorithm>

#include "base/integers.h"
#include "kernels/cuda/launch.cuh"

namespace lockstep::cuda {

namespace {

constexpr int kStoringThreads = 256;
constexpr std::int64_t kMostBlocks = 32;  // enough for the link, and few beside other work

__global__ void host_store_kernel(std::uint32_t* to, const std::uint32_t* from, std::int64_t words) {
  const std::int64_t all = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < words; i += all)
    to[i] = from[i];
}

}  // namespace

// Page-locked memory has one address for the host and the GPU, and a kernel's stores are there when it has ended.
void host_store(const HostStoreArgs& a, lockstep::Stream& stream) {
  const std::int64_t words = a.from.bytes() / 4;
  const auto blocks = static_cast<unsigned>(std::min(kMostBlocks, ceil_div(words, std::int64_t{kStoringThreads})));
  host_store_kernel<<<blocks, kStoringThreads, 0, native(stream)>>>(
      static_cast<std::uint32_t*>(a.to), static_cast<const std::uint32_t*>(a.from.raw()), words);
  check_launch("host_store");
}

}  // namespace lockstep::cuda
