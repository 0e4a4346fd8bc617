// What this machine can do at most, measured now: the ceilings that kernel rates are compared with.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace lockstep::cpu {

class Workers;

// Fused multiply-adds in registers alone, in FLOP/s, on this many threads (fp64: double; else float).
double fma_peak(DType dtype, int threads);

// Bytes read plus bytes written per second by a copy of this many bytes on this many threads; by default far more than
// caches hold.
double copy_bandwidth(int threads, std::size_t bytes = std::size_t{256} << 20);

// Passes over memory to be timed beside a kernel that streams it, on the same threads: x = c·x of each of these arrays,
// which reads and writes 8 bytes per element of each, and a = b + c·x, which reads 8 and writes 4, and brings 4 that it
// only writes.
void change_in_place(std::span<float* const> arrays, std::int64_t elements, Workers& workers);
void triad(float* a, const float* b, const float* x, std::int64_t elements, Workers& workers);

}  // namespace lockstep::cpu
