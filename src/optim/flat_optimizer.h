// An optimizer over one flat range of parameters: the moments it keeps and the update.
//
// It knows nothing of ranks, units or names: whoever holds a range (a whole unit, or a shard of one) gives it one of
// these. Moments are of the master's type and start at zero. The learning rate, the step, the gradient's scale and the
// go-ahead are read from the control tensor on the device (kernels/step_control.h).
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/optimizers.h"
#include "spec/optimizer_spec.h"
#include "tensor/memory.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

class FlatOptimizer {
 public:
  struct Range {
    std::int64_t elements;
    std::int64_t decayed;  // the first so many elements have weight decay
    DType master;
  };

  FlatOptimizer(const OptimizerSpec& spec, const Range& range, Memory& memory, const std::string& unit, Stream& stream);

  // master -= what the optimizer makes of the gradient; `weight`, if any, becomes its rounded copy.
  void update(Tensor master, Tensor weight, ConstTensor gradient, ConstTensor control, Stream& stream);

  // The state by name (AdamW: m, v; SGD: momentum, if any): what a checkpoint keeps.
  std::vector<std::pair<std::string_view, Tensor>> named_state() const;

 private:
  std::vector<Tensor> state() const;

  OptimizerSpec spec_;
  Range range_;
  Buffer first_, second_;
};

}  // namespace lockstep
