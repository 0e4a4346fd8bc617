// An optimizer over one flat range of parameters: the moments it keeps and the update.
//
// It knows nothing of ranks, units or names: whoever holds a range (a whole unit, or a shard of one) gives it one of
// these, and says where in its unit the range begins. Moments start at zero; bf16 state is rounded by chance, keyed on
// the tensor, the element of the whole tensor and the step (kernels/optimizers.h), so that it does not depend on who
// holds what. The learning rate, the step, the gradient's scale and the go-ahead are read from the control tensor on
// the device (kernels/step_control.h).
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/optimizers.h"
#include "spec/run/optimizer_spec.h"
#include "tensor/memory.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

class FlatOptimizer {
 public:
  struct Range {
    std::int64_t elements;
    std::int64_t decayed;                    // the first `decayed` elements have weight decay
    DType moments;                           // fp64 beside an fp64 master, else fp32 or bf16
    std::int64_t first = 0;                  // where in the unit the range begins
    std::vector<RoundingRun> rounding = {};  // of the unit (rounding_map.h); none: no state is bf16
  };

  // The moments are in `memory`, the stream's device's or the host's.
  FlatOptimizer(const OptimizerSpec& spec, const Range& range, Memory& memory, const std::string& unit, Stream& stream);

  // master -= what the optimizer makes of the gradient; `weight`, if any, becomes its rounded copy, and a bf16 master
  // is rounded by chance.
  void update(Tensor master, Tensor weight, ConstTensor gradient, ConstTensor control, Stream& stream);
  // The same of a part of the range, with moments that are brought: elements `begin` and on of everything.
  struct Part {
    std::int64_t begin = 0;
    Tensor master, weight;          // no weight: the master computes itself
    std::span<const Tensor> state;  // as state() gives it
    ConstTensor gradient;
  };
  void update(const Part& part, ConstTensor control, Stream& stream) const;

  // The moments, flat: AdamW's m and v, SGD's momentum if there is one.
  std::vector<Tensor> state() const;

  // The state by name (AdamW: m, v; SGD: momentum, if any): what a checkpoint keeps.
  std::vector<std::pair<std::string_view, Tensor>> named_state() const;

 private:
  OptimizerSpec spec_;
  Range range_;
  Buffer first_, second_;
};

}  // namespace lockstep
