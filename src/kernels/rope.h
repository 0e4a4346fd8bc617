// Rotary position embedding: each head's halves (a, b) become (a cos - b sin, b cos + a sin).
//
// rope_table fills cos and sin (T, D/2), in the accumulator type, for any list of positions (T, int32), from the
// frequencies theta^(-2i/D), slowed for long wavelengths as Llama 3 does when `slowing` is given. Angles are computed
// in double on every device. rope turns x (B, T, H, D) in place by those tables; with `inverse` it turns back, which is
// its backward. Token t has row t of the tables, (T, D/2), or, with positions (B, T) int32, row positions[b, t] of
// tables of any length: documents that restart. A position outside the tables throws ProgramError on the cpu.
//
// amax, when it is given: (1) float, the largest magnitude of x when it is turned, as amax() of kernels/quantize.h
// finds it, without another pass; of bf16 only.
#pragma once
#include <optional>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

// Llama 3's frequency scaling, in the terms of its config.json.
struct RopeSlowing {
  double factor;
  double low_freq_factor;
  double high_freq_factor;
  double original_positions;
};

struct RopeTableArgs {
  Tensor cos;
  Tensor sin;
  ConstTensor positions;
  double theta;
  std::optional<RopeSlowing> slowing = {};
};

struct RopeArgs {
  Tensor x;
  ConstTensor cos;
  ConstTensor sin;
  bool inverse = false;
  ConstTensor positions = {};
  Tensor amax = {};
};

using RopeTable = void(const RopeTableArgs&, Stream&);
using Rope = void(const RopeArgs&, Stream&);
RopeTable rope_table;
Rope rope;
namespace cpu {
RopeTable rope_table;
Rope rope;
}  // namespace cpu
namespace cuda {
RopeTable rope_table;
Rope rope;
}  // namespace cuda
namespace meta {
RopeTable rope_table;
Rope rope;
}  // namespace meta

}  // namespace lockstep
