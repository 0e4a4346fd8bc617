#include "kernels/block_codes.h"

#include "kernels/cuda/block_code.cuh"
#include "kernels/tree_sum.h"

namespace lockstep::cuda {

namespace {

// A warp takes a block: its numbers and its code are in shared memory meanwhile.
template <class S>
__global__ void __launch_bounds__(kThreads)
    encode_all(CodeWord* code, Compute<S>* residual, const S* x, std::int64_t n, BlockForm form) {
  using A = Compute<S>;
  __shared__ A values[kCodingWarps][kBlock];
  __shared__ CodeWord words[kCodingWarps][kMostWords];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  A* const v = values[warp];
  CodeWord* const own = words[warp];
  const std::int64_t blocks = (n + kBlock - 1) / kBlock, each = words_of_block(form);
  for (std::int64_t b = std::int64_t{blockIdx.x} * kCodingWarps + warp; b < blocks;
       b += std::int64_t{gridDim.x} * kCodingWarps) {
    const std::int64_t at = b * kBlock;
    const int count = static_cast<int>(n - at < kBlock ? n - at : kBlock);
    for (int i = lane; i < kBlock; i += 32) {
      A value = 0;
      if (i < count) {
        value = widen(x[at + i]);
        if (residual) value += residual[at + i];
      }
      v[i] = value;
    }
    __syncwarp();
    encode_block(form, v, count, own);
    __syncwarp();
    for (int w = lane; w < each; w += 32) code[b * each + w] = own[w];
    if (residual)
      for (int i = lane; i < count; i += 32) {
        const A left = v[i] - decoded_element<A>(form, own, i);
        residual[at + i] = isfinite(left) ? left : A(0);
      }
    __syncwarp();
  }
}

// Handed over by value: no memory to fill and to keep until the kernel has run.
template <int Most>
struct Codes {
  const CodeWord* code[Most];
  std::uint8_t joins[Most];
  int count;
};

// A thread adds up one element of all codes, the newest partial sum at [0], as in tree_sum.cu.
template <class S, int Most, int Depth>
__global__ void __launch_bounds__(kThreads)
    decode_all(const __grid_constant__ Codes<Most> codes, S* y, std::int64_t n, BlockForm form) {
  using A = Compute<S>;
  const std::int64_t each = words_of_block(form);
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n;
       i += std::int64_t{gridDim.x} * kThreads) {
    A partial[Depth] = {};
    for (int c = 0; c < codes.count; ++c) {
#pragma unroll
      for (int d = Depth - 1; d > 0; --d) partial[d] = partial[d - 1];
      partial[0] = decoded_element<A>(form, codes.code[c] + i / kBlock * each, static_cast<int>(i % kBlock));
      for (int some = codes.joins[c]; some > 0; --some) {
        partial[0] = partial[1] + partial[0];
#pragma unroll
        for (int d = 1; d + 1 < Depth; ++d) partial[d] = partial[d + 1];
      }
    }
    y[i] = narrow<S>(partial[0]);
  }
}

template <class S, int Most, int Depth>
void launch_decode(const DecodeBlocksArgs& a, lockstep::Stream& stream) {
  Codes<Most> codes{};
  codes.count = static_cast<int>(a.codes.size());
  for (std::size_t c = 0; c < a.codes.size(); ++c) {
    codes.code[c] = a.codes[c].template data<CodeWord>();
    codes.joins[c] = a.joins[c];
  }
  const std::int64_t n = a.y.elements();
  decode_all<S, Most, Depth><<<blocks_for(n), kThreads, 0, native(stream)>>>(codes, a.y.template data<S>(), n, a.form);
}

constexpr std::size_t kFewCodes = 16;
constexpr int kFewPartialSums = 6;

// How many partial sums these joins keep at once.
int most_partial_sums(std::span<const std::uint8_t> all) {
  int height = 0, most = 0;
  for (const int some : all) {
    most = std::max(most, ++height);
    height -= some;
  }
  return most;
}

}  // namespace

void encode_blocks(const EncodeBlocksArgs& a, lockstep::Stream& stream) {
  const std::int64_t n = a.x.elements();
  if (n == 0) return;
  with_float(a.x.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    encode_all<S><<<blocks_for(ceil_div(n, kCodedBlock), kCodingWarps), kThreads, 0, native(stream)>>>(
        a.code.data<CodeWord>(), a.residual ? a.residual.data<Compute<S>>() : nullptr, a.x.data<S>(), n, a.form);
  });
  check_launch("encode_blocks");
}

void decode_blocks(const DecodeBlocksArgs& a, lockstep::Stream& stream) {
  if (a.y.elements() == 0) return;
  const bool few = a.codes.size() <= kFewCodes && most_partial_sums(a.joins) <= kFewPartialSums;
  with_float(a.y.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    few ? launch_decode<S, kFewCodes, kFewPartialSums>(a, stream)
        : launch_decode<S, kMostSummands, kMostPartials>(a, stream);
  });
  check_launch("decode_blocks");
}

}  // namespace lockstep::cuda
