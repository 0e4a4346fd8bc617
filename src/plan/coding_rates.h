// How fast this machine's kernels compress gradients (docs/compression.md).
#pragma once
#include <functional>

#include "plan/timed_tensors.h"
#include "spec/run/compression.h"
#include "tensor/meta/stream.h"

namespace lockstep {

// The kernels of a sum of this many elements over two ranks, as one of them calls them, with error feedback: what it
// sends is coded, the parts of both are decoded and added, the sum is coded again and decoded. The tensors' to free.
std::function<void()> coding_calls(TimedTensors& tensors, const Compression& form, std::int64_t elements);

// Of those calls, as meta counts them.
meta::Work coding_work(const RunSpec& run, const Compression& form, std::int64_t elements);

// Seconds of a byte that they read or write, of each of `copies` ranks of so many threads that do it at once.
double measure_coding(const RunSpec& run, const Compression& form, int threads, int copies,
                      std::int64_t elements = std::int64_t{1} << 20);

}  // namespace lockstep
