// The three products of a projection in FP8: y = x · Wᵀ and dW = dyᵀ · x of E4M3's x, dy and dx = dy · W of E5M2's dy.
//
// Per-tensor current scaling (kernels/quantize.h): whoever writes a tensor finds its largest magnitude on its way where
// a kernel of ours is that (norms, SwiGLU, RoPE); others are read once for it. Then each is read once to be quantized.
// GPUs multiply only operands whose rows run along the sum, so a product and the next one need the same tensor in two
// forms, as it is and turned:
//
//   phase      reads              writes                          multiplies
//   forward    x, W twice         x8, W8                          y  = x8 · W8ᵀ      (fast sums)
//   input      dy, W              dy8 and dy8 turned, W8 turned   dx = dy8 · W8
//   weight     x                  x8 turned                       dW = dy8ᵀ · x8, added in the gradient's type
//
// What a norm gives is written in FP8 alone: the norm finds its largest magnitude, and whoever quantizes reads what the
// norm was given. So is the gradient that SwiGLU's backward gives, and with it SwiGLU's output where that is
// recomputed.
//
// Largest magnitudes and scales stay from the forward on (a few bytes); the gradient turned, from the input phase to
// the weight phase; everything else lives while its product runs, in bytes that the products of half a block use one
// after the other. In a block that recomputes nothing the forward turns x and W too. Of x that is kept for the weight
// phase in the place of x itself: half the bytes, and x is not read again. Of W it is kept for the input phase, unless
// a block's weights would take more bytes than that saves: so FP8 keeps no more than bf16 would. What is recomputed
// is equal to the bit, so it is quantized to the same bits. Weights are quantized anew for every micro-batch, from what
// computes in bf16 elsewhere (embedding, norms, attention, head), so that gathered and offloaded weights need nothing
// of their own.
//
// Ranks that split a layer (model/split_linear.h) share a tensor's scale: the largest of their largest magnitudes, of
// inputs and weights in one message before the forward, of gradients in one before the input phase. What a rank has all
// of is quantized before its product begins; rows of other ranks, as they come, and they are turned when all are here.
//
// A projection whose tokens, inputs or outputs here are no multiple of 16 has none of this: its products are in bf16.
#pragma once
#include "kernels/quantize.h"
#include "model/build.h"
#include "spec/model/fp8_fit.h"

namespace lockstep {

// What a product multiplies: a tensor, or what a norm gave of it, which is nowhere but in FP8.
struct ProductInput {
  ConstTensor x;
  QuantizedNorm norm = {};

  ProductInput(const ConstTensor& tensor) : x(tensor) {}  // NOLINT: implicit on purpose
  ProductInput(const Tensor& tensor) : x(tensor) {}       // NOLINT: implicit on purpose
  ProductInput(const ConstTensor& given, const QuantizedNorm& by) : x(given), norm(by) {}
};

class Fp8Products {
 public:
  // Whether a projection of the model to be built has them.
  static bool fit(const Build& build, std::int64_t in, std::int64_t out) {
    return build.how.fp8 && fits_fp8(build.tokens(), in, out);
  }
  // Whether x itself, of which all rows are here, is read by nobody after the forward: that it is kept turned.
  static bool keep_inputs(const Build& build, int unit, std::int64_t in, std::int64_t out) {
    const BlockRecompute recompute = build.recompute(unit);
    return fit(build, in, out) && recompute.keeps_norm_outputs() && recompute.keeps_activation;
  }
  // Whether x that a norm gives is nowhere in bf16: what the norm was given, and its weight, are there until the input
  // phase.
  static bool read_norms(const Build& build, std::int64_t in, std::int64_t out) {
    return fit(build, in, out) && !build.how.split.sequence;
  }
  // Whether weights are kept turned from the forward on.
  static bool keep_weights(const Build& build, int unit);
  struct Options {
    std::int64_t in, out;
    bool in_out = false;  // the weight is (in, out), not (out, in)
    // Who writes x, or dy, writes its largest magnitude too (kernels/swiglu.h), and a pass is saved.
    bool inputs_measured = false, gradients_measured = false;
    // The same of dy, in a slot of whoever writes it, which is none where that is another stage: then it is found here.
    Slot gradients_largest = -1;
    // Unless x is kept turned, it is turned in the input phase: by turn_inputs(), or by whoever makes it again, to
    // inputs_turned(). Else in the weight phase.
    bool inputs_turned_again = false;
    // Of a split layer: a rank has only its own rows before the product, or it has what other ranks have too.
    bool inputs_come = false, gradients_come = false;
    bool gradients_alike = false;
  };
  Fp8Products(const Build& build, const LayerPlace& place, const Options& options);

  bool keeps_inputs() const { return keeps_inputs_; }
  Tensor inputs_amax(const Call& call) const { return largest(x_, call); }
  Tensor gradients_amax(const Call& call) const;

  Tensor inputs_turned(const Call& call) const;
  void turn_inputs(const ProductInput& x, const Call& call) const;

  // Before the rows of a product: of what this rank has of x, or of dy; dy none: begin_gradients was called for it.
  void begin_forward(const ProductInput& x, ConstTensor weight, bool again, const Call& call) const;
  void begin_backward(ConstTensor dy, ConstTensor weight, const Call& call) const;
  // Where dy goes in FP8, for whoever writes it so, and has found its largest magnitude here.
  struct Gradients {
    Tensor q, turned, scale;
    ConstTensor amax;
  };
  Gradients begin_gradients(const Call& call) const;
  // Rows from `first` on.
  void forward(Tensor y, ConstTensor x, std::int64_t first, ConstTensor bias, ConstTensor addend, bool again,
               const Call& call) const;
  void backward_input(Tensor dx, ConstTensor dy, std::int64_t first, const Call& call) const;
  // Of all rows of the dy that backward_input was given.
  void backward_weight(Tensor gradient, ConstTensor dy, const ProductInput& x, const Call& call) const;

 private:
  struct Scaling {
    Slot amax;
    int place;  // in it
    Slot scale;
  };
  struct Scratch {
    Slot rows, weight;  // x8 or dy8, and W8
  };
  static Tensor largest(const Scaling& s, const Call& call) { return call.at[s.amax].slice(0, s.place, 1); }
  void find_largest(Tensor amax, ConstTensor x, const Call& call) const;
  Tensor rows8(Slot scratch, bool gradients, const Call& call) const;
  Tensor weight8(Slot scratch, bool turned, const Call& call) const;
  Tensor weight8_back(const Call& call) const;
  void share_gradients_amax(const Call& call) const;
  void quantize_inputs(Tensor q, Tensor turned, const ProductInput& x, const Call& call) const;
  void quantize_weights(Tensor w8, Tensor w8_turned, ConstTensor weight, const Call& call) const;
  void quantize_gradients(Tensor q, Tensor turned, ConstTensor dy, const Call& call) const;

  Options options_;
  std::int64_t tokens_;
  bool keeps_inputs_, keeps_weights_;
  Scaling x_, weight_, gradient_;
  Scratch first_, back_;  // in the forward, and in the input phase
  Slot dy8_turned_;
  Slot x8_turned_;            // kept, or of the weight phase
  Slot weight8_turned_ = -1;  // kept
};

}  // namespace lockstep
