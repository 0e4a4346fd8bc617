// The code of one block (block_codes.h), made by a warp, and single elements out of it: what the kernels of codes
// share.
//
// The bits are those of cpu/block_code.h: maxima do not depend on their order, and the sums of onebit are made in the
// header's eight lanes, each by one thread.
#pragma once
#include <limits>

#include "kernels/block_codes.h"
#include "kernels/cuda/launch.cuh"

namespace lockstep::cuda {

using CodeWord = std::int32_t;
inline constexpr int kBlock = static_cast<int>(kCodedBlock);
inline constexpr int kMostWords = static_cast<int>(words_of_block(BlockForm::bf16));
inline constexpr int kCodingWarps = kThreads / 32;  // of a thread block, each at a block of its own

template <class A>
__device__ inline void encode_bf16(const A* v, CodeWord* code) {
  for (int w = static_cast<int>(threadIdx.x) % 32; w < kBlock / 2; w += 32) {
    const unsigned low = narrow<bf16>(v[2 * w]).bits, high = narrow<bf16>(v[2 * w + 1]).bits;
    code[w] = static_cast<CodeWord>(low | high << 16);
  }
}

template <class A>
__device__ inline void encode_int8(const A* v, CodeWord* code) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  A largest = 0;
  bool finite = true;
  for (int i = lane; i < kBlock; i += 32) {
    const A size = fabs(v[i]);
    finite = finite && size <= static_cast<A>(std::numeric_limits<float>::max());
    if (size > largest) largest = size;
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    const A other = __shfl_xor_sync(0xffffffffu, largest, offset);
    if (other > largest) largest = other;
  }
  finite = __all_sync(0xffffffffu, finite);
  const float scale = finite ? static_cast<float>(largest) / 127.0f : __uint_as_float(0x7fc00000u);
  if (lane == 0) code[0] = __float_as_int(scale);
  for (int w = lane; w < kBlock / 4; w += 32) {
    unsigned word = 0;
    for (int b = 0; b < 4 && scale > 0; ++b) {
      A q = rint(v[4 * w + b] / static_cast<A>(scale));
      q = q < -127 ? A(-127) : q > 127 ? A(127) : q;
      word |= (static_cast<unsigned>(static_cast<int>(q)) & 255u) << (8 * b);
    }
    code[1 + w] = static_cast<CodeWord>(word);
  }
}

// Lanes 0 to 7 add up what is not negative, lanes 8 to 15 what is.
template <class A>
__device__ inline void encode_onebit(const A* v, int count, CodeWord* code) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int negatives = 0;
  for (int w = 0; w < kBlock / 32; ++w) {
    const unsigned signs = __ballot_sync(0xffffffffu, v[32 * w + lane] < 0);
    negatives += __popc(signs);
    if (lane == 0) code[2 + w] = static_cast<CodeWord>(signs);
  }
  double sum = 0;
  if (lane < 16)
    for (int i = lane % 8; i < kBlock; i += 8) {
      const double x = static_cast<double>(v[i]);
      if ((x < 0) == (lane >= 8)) sum += x;
    }
  double others = 0, below = 0;
  for (int l = 0; l < 8; ++l) {
    others += __shfl_sync(0xffffffffu, sum, l);
    below += __shfl_sync(0xffffffffu, sum, 8 + l);
  }
  if (lane != 0) return;
  const int rest = count - negatives;
  code[0] = __float_as_int(static_cast<float>(rest > 0 ? others / static_cast<double>(rest) : 0));
  code[1] = __float_as_int(static_cast<float>(negatives > 0 ? below / static_cast<double>(negatives) : 0));
}

// Of kBlock numbers in shared memory, zeros from `count` on; the whole warp calls it, before and after it __syncwarp.
template <class A>
__device__ inline void encode_block(BlockForm form, const A* v, int count, CodeWord* code) {
  switch (form) {
    case BlockForm::bf16:
      return encode_bf16(v, code);
    case BlockForm::int8:
      return encode_int8(v, code);
    case BlockForm::onebit:
      return encode_onebit(v, count, code);
  }
}

// What element i of a block decodes to.
template <class A>
__device__ inline A decoded_element(BlockForm form, const CodeWord* code, int i) {
  switch (form) {
    case BlockForm::bf16:
      return static_cast<A>(__uint_as_float(static_cast<unsigned>(code[i / 2]) >> (16 * (i % 2)) << 16));
    case BlockForm::int8: {
      const auto q = static_cast<std::int8_t>(static_cast<unsigned>(code[1 + i / 4]) >> (8 * (i % 4)));
      return static_cast<A>(__int_as_float(code[0])) * static_cast<A>(q);
    }
    case BlockForm::onebit:
      break;
  }
  const unsigned negative = static_cast<unsigned>(code[2 + i / 32]) >> (i % 32) & 1u;
  return static_cast<A>(__int_as_float(code[negative])) + A(0);  // a mean of -0 is +0, as on the cpu
}

}  // namespace lockstep::cuda
