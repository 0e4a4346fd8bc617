// A run of bytes brought from global to shared memory by the copy engine, while the block does something else.
//
// An Arrival is stored in shared memory and is started by one thread before all threads of the block meet. From then on
// one thread orders a copy and every thread waits for it, in turns: `round` is 0 for the first copy, 1 for the second,
// 0 for the third. The copy engine reads and writes sixteen bytes at a time: source, destination and length are
// multiples of that. Where a copy lands, every thread must have read what it wants of the one before, and have met the
// thread that orders the next.
//
// For GPUs from compute capability 9.0 on.
#pragma once
#include <cstdint>

namespace lockstep::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

struct Arrival {
  unsigned long long state;

  __device__ unsigned address() { return static_cast<unsigned>(__cvta_generic_to_shared(&state)); }

  __device__ void start() {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address()) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");  // the copy engine is to see it
  }

  __device__ void order(void* to, const void* from, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     static_cast<unsigned>(__cvta_generic_to_shared(to))),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(address())
                 : "memory");
  }

  __device__ void wait(unsigned round) {
    unsigned there = 0;
    while (!there)
      asm volatile(
          "{\n"
          ".reg .pred p;\n"
          "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n"
          "}"
          : "=r"(there)
          : "r"(address()), "r"(round)
          : "memory");
  }
};

#endif

}  // namespace lockstep::cuda
