// The two products of a layer that is cut between ranks (parallel/tensor_parallel.h): one whose outputs are cut, which
// gives each rank some of them from all inputs, and one whose inputs are cut, whose outputs are summed over ranks.
//
// Both take and give rows as they are between layers: a rank's own tokens with sequence parallelism, else all of them.
// With sequence parallelism all tokens are here only while a product needs them: the weight's gradient gathers the
// inputs again, and also the outputs' gradients where the weight phase runs later (Execution::weights_later:
// zero-bubble schedules). In a group of one, each is a plain Linear and allocates nothing more.
#pragma once
#include "model/build.h"
#include "model/linear.h"

namespace lockstep {

class ColumnLinear {
 public:
  ColumnLinear(UnitLayout& layout, const Build& build, const LayerPlace& place, const Linear::Options& options);

  void forward(Tensor y, const ProductInput& x, const Call& call) const { project(whole_, y, x, false, call); }
  // Once more, in the input phase, where what it gave was not kept.
  void forward_again(Tensor y, const ProductInput& x, const Call& call) const {
    project(whole_again_, y, x, true, call);
  }
  void backward_input(Tensor dx, ConstTensor dy, const Call& call) const;
  Tensor inputs_amax(const Call& call) const { return linear_.inputs_amax(call); }
  Tensor gradients_amax(const Call& call) const { return linear_.gradients_amax(call); }
  void turn_inputs(const ProductInput& x, const Call& call) const { linear_.turn_inputs(x, call); }
  Fp8Products::Gradients begin_gradients(const Call& call) const { return linear_.begin_gradients(call); }
  bool trains() const { return linear_.trains(); }
  // The weight's gradient, in two calls: between them other work may be done while the inputs are gathered.
  using Gathering = TensorParallel::Gathering;
  [[nodiscard]] Gathering begin_weight(const ProductInput& x, const Call& call) const;
  void backward_weight(ConstTensor dy, const ProductInput& x, Gathering& gathering, const Call& call) const;

 private:
  void project(Slot whole, Tensor y, const ProductInput& x, bool again, const Call& call) const;

  Linear linear_;
  Slot whole_ = -1, whole_again_ = -1, whole_inputs_ = -1, d_whole_ = -1;  // only with sequence parallelism
};

class RowLinear {
 public:
  RowLinear(UnitLayout& layout, const Build& build, const LayerPlace& place, const Linear::Options& options);

  bool keeps_inputs() const { return linear_.keeps_inputs(); }
  bool trains() const { return linear_.trains(); }
  Tensor inputs_amax(const Call& call) const { return linear_.inputs_amax(call); }
  Tensor inputs_turned(const Call& call) const { return linear_.inputs_turned(call); }
  // y = … + addend, which only a rank alone may have.
  void forward(Tensor y, ConstTensor x, const Call& call, ConstTensor addend = {}) const;
  void backward_input(Tensor dx, ConstTensor dy, const Call& call) const;
  using Gathering = TensorParallel::Gathering;
  [[nodiscard]] Gathering begin_weight(ConstTensor dy, const Call& call) const;
  void backward_weight(ConstTensor dy, ConstTensor x, Gathering& gathering, const Call& call) const;

 private:
  Linear linear_;
  Slot partial_ = -1, d_whole_ = -1, d_whole_again_ = -1;  // only with sequence parallelism; again: for the weights
};

}  // namespace lockstep
