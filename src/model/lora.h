// LoRA: a low-rank adapter beside a projection whose own weight stays as it is (docs/lora.md).
//
//   u = s · x · Aᵀ     y += u · Bᵀ          s = alpha / rank; A (rank, in), B (out, rank)
//   v = s · dy · B     dx += v · A          dB = dyᵀ · u     dA = vᵀ · x
//
// Of a projection that several logical tensors are stacked in, each target has its own A and B: all A are one stored
// parameter, so x is multiplied once, and each B is multiplied with its own columns of y. u stays from the forward to
// the weight phase (where that phase's block runs its forward again, it is made there once more), v from the input
// phase.
//
// Where ranks cut the outputs, B is cut as they are and every rank has all of A; where they cut the inputs, A is cut
// and every rank has all of B. What every rank has, it has a part of the gradient of (parallel/partial_gradients.h).
// Everything goes row by row, so rows may be exchanged in pieces: `first` is the row that x or dy begins with.
#pragma once
#include <string>
#include <vector>

#include "model/unit.h"
#include "spec/layout/tensor_split.h"

namespace lockstep {

struct Build;
struct LayerPlace;

class Lora {
 public:
  // A logical projection, which may be one of several that are stacked.
  struct Target {
    std::string name;
    ParameterPiece b;           // what is here of its B
    std::int64_t begin, count;  // columns of y
  };
  struct Options {
    Part in;
    std::vector<Target> targets;
  };
  Lora(UnitLayout& layout, const Build& build, const LayerPlace& place, const Options& options);

  // `again`: in the input phase of a projection whose outputs were not kept, after its forward.
  void forward(const Tensor& y, const ConstTensor& x, std::int64_t first, bool again, const Call& call) const;
  // dx none: nobody wants it, and v is made alone.
  void backward_input(const Tensor& dx, const ConstTensor& dy, std::int64_t first, const Call& call) const;
  void backward_weight(const ConstTensor& dy, const ConstTensor& x, const Call& call) const;

 private:
  struct Columns {
    std::int64_t begin, count;
    int b;  // its parameter
  };
  Tensor make_low(const Tensor& low, const ConstTensor& x, const Call& call) const;
  void scale_by_alpha(const Tensor& low, const Call& call) const;

  std::int64_t rank_;
  double scale_;
  int a_;
  std::vector<Columns> targets_;
  Slot low_, low_again_, d_low_;
};

}  // namespace lockstep
