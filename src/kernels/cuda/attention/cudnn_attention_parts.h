// Which attention is cuDNN's, what memory its backward takes, and how it is split to keep that in bounds.
//
// All of it follows from sizes alone, so that a run's memory is known where there is neither a GPU nor the library.
#pragma once
#include "kernels/attention.h"

namespace lockstep::cuda {

// Below one tile of the fused kernels most of what they compute is masked, and a plan takes most of a second to build,
// in which the plain kernel has done such calls (tests, short prompts) many thousand times.
inline constexpr std::int64_t kFusedTokens = 64;
inline constexpr std::int64_t kFusedHeadWidth = 128;  // the widest head whose backward is fused

// A deterministic backward is split into parts that take no more than this, where they can: 1 GiB for the gradients of
// scores and an eighth of that for what is beside them. (Sizes are powers of two, and would just miss a round bound.)
inline constexpr std::int64_t kDeterministicWorkspace = std::int64_t{9} << 27;

// Null where cuDNN is to compute attention of these sizes, or why it is not. (Strides and addresses have a say later.)
const char* why_not_cudnn(const AttentionSizes& sizes);

// A part: some samples and some key/value heads with their query heads. The first divides B, the second K.
struct AttentionPart {
  std::int64_t B, K;
};
// Everything at once, unless it is deterministic and takes more than the bound: then as many samples as stay within it;
// then one sample and as many key/value heads; at least one of those, whatever it takes.
AttentionPart attention_part(const AttentionSizes& sizes, std::int64_t bound = kDeterministicWorkspace);

// Where things are in the workspace of a part, in bytes; parts follow each other and share it.
struct AttentionReserve {
  std::int64_t delta;        // at the start: fp32 (B, H, T), the sums over D of o times d_o
  std::int64_t accumulator;  // after it: fp32 (B, H, T, D) for dq, unless deterministic
  std::int64_t plan;         // after both: what the library asks for itself
  std::int64_t total() const { return delta + accumulator + plan; }
};
AttentionReserve attention_reserve(const AttentionSizes& sizes, const AttentionPart& part);

}  // namespace lockstep::cuda
