// Attention written for Hopper: bf16, heads of 64 or 128, under the causal mask or without (a ring's pairs), of one
// document or of many; one pass over the scores in either direction, and the same bits in every run.
//
// The contract is kernels/attention.h's. A probability and the gradient of a score are rounded to bf16 before the
// product that they enter; all sums are fp32. Order of sums: o and dq by keys ascending, in tiles of 128; dk and dv by
// tiles of queries descending, and within a tile by the query heads of the group ascending. A NaN or an infinity
// spreads within its tile, also to what the mask hides. Tiles in which the masks leave nothing are neither computed nor
// read; where documents begin is read by the kernels, so a captured stream may be replayed with other documents.
//
// It does not take sizes that why_not_hopper() names, operands whose addresses are not multiples of 16 bytes or whose
// strides are not multiples of 8 elements, in the backward a workspace that is too small, GPUs other than those of
// compute capability 9.0, and a program built without code for Hopper's own instructions (sm_90a). There is nothing to
// build or to keep, so a stream may be captured from the first call on. Failure: EnvironmentError, where a call of CUDA
// fails.
#pragma once
#include <string>

#include "base/integers.h"
#include "kernels/attention.h"

namespace lockstep::cuda {

// Queries of a tile: as many as fit, with their scores, into the registers beside the sums of dk and dv.
constexpr std::int64_t hopper_queries(std::int64_t width) { return width == 64 ? 128 : 64; }
inline constexpr std::int64_t kHopperKeys = 128;   // of a block
inline constexpr std::int64_t kHopperTokens = 64;  // below, most of a tile would be masked

// Null where the kernel takes attention of these sizes, or why it does not. (The GPU, strides and addresses have a say
// later.)
const char* why_not_hopper(const AttentionSizes& sizes);

// Where things are in the backward's workspace, in bytes and in this order. Tp is T rounded up to whole tiles.
struct HopperReserve {
  std::int64_t dq;          // fp32 (B, H, Tp, D): the sums of dq, in the order in which registers hold them
  std::int64_t statistics;  // twice fp32 (B, H, Tp): lse, and the sums over D of o times d_o
  std::int64_t turns;       // 32 bits for each half of a tile: whose turn it is to add; then the next block's number
  std::int64_t first;       // with documents, 32 bits (B, Tp): the key with which each query's begins
  std::int64_t total() const { return dq + statistics + turns + first; }
};
HopperReserve hopper_reserve(const AttentionSizes& sizes);

// "" when the work is queued on the stream, or why it is not taken; then nothing was done.
std::string hopper_attention_forward(const AttentionForwardArgs& args, lockstep::Stream& stream);
std::string hopper_attention_backward(const AttentionBackwardArgs& args, lockstep::Stream& stream);

}  // namespace lockstep::cuda
