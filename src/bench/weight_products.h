// The products of a model's weights alone, as a step has them: forward, the gradient of the input and that of the
// weight, of each matrix, in each micro-batch; the head's in its tiles. One after the other, on operands of their own.
#pragma once
#include <vector>

#include "model/model.h"
#include "plan/timed_tensors.h"

namespace lockstep {

class WeightProducts {
 public:
  // The desk outlives it.
  WeightProducts(const RunSpec& run, const Model& model, TimedTensors& desk);

  double flops() const { return flops_; }
  void run();

 private:
  struct Matrix {
    std::int64_t out, in;
    std::int64_t rows;  // tokens at a time
    bool head;          // whose output stays in the type of sums
  };
  TimedTensors& desk_;
  std::vector<Matrix> matrices_;
  Tensor x_, dx_, y_, logits_, w_, dw_;
  std::int64_t tokens_, micro_;
  double flops_ = 0;
};

}  // namespace lockstep
