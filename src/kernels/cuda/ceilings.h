// What a GPU can do at most, measured now: the ceiling that kernels which only move bytes are compared with.
#pragma once
#include "tensor/memory.h"
#include "tensor/stream.h"

namespace lockstep::cuda {

// Bytes read plus bytes written each second by the driver's own copy, far larger than the caches, within the GPU's
// memory. Takes four gigabytes from it meanwhile.
double copy_bandwidth(Memory& memory, lockstep::Stream& stream);

}  // namespace lockstep::cuda
