// Attention in 16 bits, causal or to all keys, by cuDNN's fused kernels, several times as fast as the plain ones.
//
// The contract is kernels/attention.h's, with three differences that its header names: the order of sums is the
// library's own, a probability (in the backward, also the gradient of a score) is rounded to the operands' type before
// the product that it enters, and with grouped heads so are the gradients of keys and values of each query head, before
// these are added up. It does not take sizes that why_not_cudnn() names, operands whose addresses are not multiples of
// 16 bytes or whose strides are not multiples of 8 elements, a workspace that is too small, and what the library has no
// plan for; the caller then uses the plain kernel.
//
// A plan is built (0.7 s) when a stream first sees a form of attention, and kept with the stream; a stream that is
// being captured must have seen it before. Failure: EnvironmentError, where cuDNN is not installed or one of its calls
// fails for any other reason than not being able to.
#pragma once
#include <string>

#include "kernels/attention.h"
#include "kernels/cuda/attention/cudnn_attention_parts.h"

namespace lockstep::cuda {

// "" when the work is queued on the stream, or why it is not taken; then nothing was done.
std::string cudnn_attention_forward(const AttentionForwardArgs& args, lockstep::Stream& stream);
std::string cudnn_attention_backward(const AttentionBackwardArgs& args, lockstep::Stream& stream,
                                     std::int64_t bound = kDeterministicWorkspace);

}  // namespace lockstep::cuda
