// How the warps of one block wait for each other and for the copy engine on Hopper.
//
// A Barrier is stored in shared memory and works in rounds: a round is over when as many have arrived as start() said
// and all the bytes that expect() named have landed. wait(parity) returns when the round of that parity is over: 0 for
// the first, 1 for the second, 0 for the third; parity 1 on a barrier that no one has come to returns at once, which is
// how the first wait for an empty buffer is spared. A waiter may be one round late, never two.
//
// meet() and pass() are the sixteen numbered barriers of a block: `threads` of them come, whole warps; those that meet
// wait for all, those that pass do not.
//
// For GPUs of compute capability 9.0.
#pragma once
#include <cstdint>

namespace lockstep::cuda::hopper {

__device__ inline std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

struct Barrier {
  std::uint64_t state;

  __device__ void start(unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&state)), "r"(arrivals) : "memory");
  }
  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&state)) : "memory");
  }
  // Arrives, and has the round wait for this many bytes.
  __device__ void expect(unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&state)), "r"(bytes)
                 : "memory");
  }
  __device__ void wait(unsigned parity) {
    asm volatile(
        "{\n"
        ".reg .pred over;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
        "@over bra done;\n"
        "bra again;\n"
        "done:\n"
        "}" ::"r"(shared_address(&state)),
        "r"(parity)
        : "memory");
  }
};

// After the barriers were started by one thread, before the block meets: the copy engine is to see them.
__device__ inline void show_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// What this thread wrote to shared memory is to be read by the copy engine or the tensor cores; before it arrives.
__device__ inline void show_shared_writes() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ inline void meet(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ inline void pass(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Registers of each thread of this warp group from here on; all its warps must come.
template <int kRegisters>
__device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace lockstep::cuda::hopper
