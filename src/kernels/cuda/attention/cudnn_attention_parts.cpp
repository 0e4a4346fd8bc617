#include "kernels/cuda/attention/cudnn_attention_parts.h"

#include "base/integers.h"

namespace lockstep::cuda {

const char* why_not_cudnn(const AttentionSizes& s) {
  if (s.dtype != DType::bf16 && s.dtype != DType::f16) return "it is for 16-bit types";
  if (s.dropout) return "its dropout is not keyed on logical indices";
  if (s.documents) return "it has no masks of documents";
  if (s.causal && s.S != s.T) return "under the causal mask it is for as many keys as queries";
  if (s.D % 8 != 0 || s.D > kFusedHeadWidth) return "it is for head widths that are multiples of 8, at most 128";
  if (s.T < kFusedTokens || s.S < kFusedTokens) return "there are too few tokens to be worth a plan";
  if (s.B == 0 || s.H == 0 || s.D == 0) return "there is nothing to do";
  return nullptr;
}

namespace {

template <class Fits>
std::int64_t largest_divisor(std::int64_t of, Fits&& fits) {
  for (std::int64_t d = of; d > 1; --d)
    if (of % d == 0 && fits(d)) return d;
  return 1;
}

}  // namespace

AttentionPart attention_part(const AttentionSizes& s, std::int64_t bound) {
  const AttentionPart whole{s.B, s.K};
  if (!s.deterministic) return whole;
  const auto within = [&](const AttentionPart& part) { return attention_reserve(s, part).total() <= bound; };
  if (within({1, s.K})) return {largest_divisor(s.B, [&](std::int64_t B) { return within({B, s.K}); }), s.K};
  return {1, largest_divisor(s.K, [&](std::int64_t K) { return within({1, K}); })};
}

// What the plans of cuDNN 9.19 ask for on Hopper: a few bytes; with grouped heads, the gradients of keys and values of
// every query head, in 16 bits; and to be deterministic, the gradients of all scores in 16 bits, in tiles of 128. A
// version or a GPU whose plans ask for more than this is not used.
AttentionReserve attention_reserve(const AttentionSizes& s, const AttentionPart& part) {
  constexpr std::int64_t kFew = 64 << 10;
  const std::int64_t heads = part.B * part.K * (s.H / s.K);  // of queries
  AttentionReserve reserve{.delta = round_up(4 * heads * s.T, kAlignment), .accumulator = 0, .plan = kFew};
  if (s.H != s.K) reserve.plan += 2 * 2 * heads * s.S * s.D;
  if (s.deterministic) {
    reserve.plan += 2 * heads * round_up(s.T, 128) * round_up(s.S, 128);
  } else {
    reserve.accumulator = round_up(4 * heads * s.T * s.D, kAlignment);
  }
  return reserve;
}

}  // namespace lockstep::cuda
