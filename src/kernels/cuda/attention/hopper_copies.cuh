// Copies between global and shared memory by Hopper's copy engine, ordered by one thread and done while it continues.
//
// In: a box of a tensor that a map describes (rows of 128 bytes, laid out in shared memory with the 128-byte swizzle
// that the tensor cores read; what is outside the tensor arrives as zeros), or a run of bytes; each is counted by a
// Barrier that expects its bytes. Out: a run of bytes, stored or added as fp32 to what is there; commit_copies() ends a
// group of these. copies_read() returns when the groups' shared memory may be written again, copies_done() when what
// they wrote is there. Addresses and lengths are multiples of 16 bytes, boxes start at multiples of 1024.
#pragma once
#include <cuda.h>

#include "kernels/cuda/attention/hopper_barriers.cuh"

namespace lockstep::cuda::hopper {

struct BoxAt {
  int column, row, head, sample;
};

__device__ inline void copy_box(void* to, const CUtensorMap& map, const BoxAt& at, Barrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(shared_address(to)),
      "l"(&map), "r"(at.column), "r"(at.row), "r"(at.head), "r"(at.sample), "r"(shared_address(&barrier.state))
      : "memory");
}

__device__ inline void copy_in(void* to, const void* from, unsigned bytes, Barrier& barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(&barrier.state))
               : "memory");
}

__device__ inline void copy_out(void* to, const void* from, unsigned bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(to)),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}

__device__ inline void add_out(float* to, const float* from, unsigned bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(to)),
      "r"(shared_address(from)), "r"(bytes)
      : "memory");
}

__device__ inline void commit_copies() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
__device__ inline void copies_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ inline void copies_done() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

}  // namespace lockstep::cuda::hopper
