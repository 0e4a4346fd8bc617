// A projection: y = x · weightᵀ (+ bias), the weight stored (out, in), or (in, out) as GPT-2's Conv1D stores it.
//
// x (N, in), y (N, out). Nothing is owned: indices of parameters, and the three products of a projection and its
// gradients.
#pragma once
#include <string>
#include <vector>

#include "model/unit.h"

namespace lockstep {

class Linear {
 public:
  struct Options {
    std::int64_t in;
    std::int64_t out;
    bool in_out = false;  // the weight is stored (in, out)
    double init_std = 0.02;
    // The logical tensors, stacked along `out`: name without ".weight"/".bias" and its share of `out`.
    std::vector<std::pair<std::string, std::int64_t>> pieces;
    bool bias = false;
  };

  Linear(UnitLayout& layout, const Options& options);

  void forward(Tensor y, ConstTensor x, const Call& call, ConstTensor addend = {}) const;  // y = … + addend
  void backward_input(Tensor dx, ConstTensor dy, const Call& call) const;
  void backward_weight(ConstTensor dy, ConstTensor x, const Call& call) const;

 private:
  bool in_out_;
  int weight_;
  int bias_ = -1;
};

}  // namespace lockstep
