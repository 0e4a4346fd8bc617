// The kernels of a run's step, each at the sizes the step calls it with.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "model/model.h"
#include "plan/timed_tensors.h"

namespace lockstep {

// Made on a desk, which outlives it, then called again and again.
struct KernelBench {
  std::string name;
  std::function<std::function<void()>(TimedTensors&)> make;
};

std::vector<KernelBench> kernel_benches(const RunSpec& run, const Model& model);

// Attention alone: the name of its forward, and of its backward with and without the same bits in every run.
inline constexpr const char* kAttentionForward = "attention_forward";
inline constexpr const char* kAttentionBackward = "attention_backward";
inline constexpr const char* kAttentionBackwardFree = "attention_backward_free";

// Tokens that the head computes logits of at a time.
std::int64_t head_tile(const Model& model);

}  // namespace lockstep
