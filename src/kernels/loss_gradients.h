// What every loss checks alike: where, and in which type, the gradients of logits may be written, and which targets had
// the largest logit (cross_entropy.h).
#pragma once
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

// dlogits is none, or of the logits' shape, of their type or of 16 bits beside fp32, and does not overlap them, or
// overlays them row by row; else ProgramError, naming the op.
void check_loss_gradients(const char* op, const Tensor& dlogits, const ConstTensor& logits, const Stream& stream);

// likeliest is none, or one flat int32 for each of `rows` rows; else ProgramError, naming the op.
void check_likeliest(const char* op, const Tensor& likeliest, std::int64_t rows, const Stream& stream);

}  // namespace lockstep
