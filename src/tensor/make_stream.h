// A compute stream of a device.
#pragma once
#include <memory>

#include "tensor/memory.h"
#include "tensor/stream.h"

namespace lockstep {

// Of the memory's device, with its fixed scratch taken from it. `threads` are the cpu's. On meta the stream holds the
// scratch that the stream of `stands_for` would take.
std::unique_ptr<Stream> make_stream(Memory& memory, int threads, Device stands_for = Device::cpu);

}  // namespace lockstep
