// The table of gradients: for every kernel with a backward, its forward and backward run together in double.
//
// A case's run() calls the forward kernel, then the backward kernels on what the forward saved. The loss is the sum of
// weight · output, the weights being the gradients that come in; each input's gradient must be the loss's slope.
#pragma once
#include "support/kernel_cases.h"

namespace lockstep::tests {

struct GradientCase {
  struct Pair {
    int value;
    int gradient;
  };
  KernelCase both;
  std::vector<Pair> outputs;  // of the forward, with the gradient given for each; a single element stands for all
  std::vector<Pair> inputs;   // of the forward, with the gradient the backward wrote for each
};

const std::vector<GradientCase>& gradient_cases();

}  // namespace lockstep::tests
