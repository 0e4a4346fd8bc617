// Where, and in which type, the gradients of logits may be written: checked alike for every loss (cross_entropy.h).
#pragma once
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

// dlogits is none, or of the logits' shape, of their type or of 16 bits beside fp32, and does not overlap them, or
// overlays them row by row; else ProgramError, naming the op.
void check_loss_gradients(const char* op, const Tensor& dlogits, const ConstTensor& logits, const Stream& stream);

}  // namespace lockstep
