// The code of one block (block_codes.h), into and out of an array: what the kernels of codes share.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/block_codes.h"
#include "kernels/cpu/types.h"

namespace lockstep::cpu {

inline constexpr int kBlock = static_cast<int>(kCodedBlock);
template <class A>
using Block = std::array<A, kCodedBlock>;
using CodeWord = std::int32_t;

template <class S>
using AccumulatorOf = std::conditional_t<std::is_same_v<S, double>, double, float>;

inline CodeWord word_of(float value) { return std::bit_cast<CodeWord>(value); }
inline float float_of(CodeWord word) { return std::bit_cast<float>(word); }

// Values beyond the block's end are zeros in all forms.

template <class A>
void encode_bf16(const Block<A>& v, CodeWord* code) {
  std::array<bf16, kCodedBlock> rounded;
  for (int i = 0; i < kBlock; ++i) rounded[i] = convert<A, bf16>(v[i]);
  std::memcpy(code, rounded.data(), sizeof rounded);
}
template <class A>
void decode_bf16(const CodeWord* code, Block<A>& v) {
  std::array<bf16, kCodedBlock> rounded;
  std::memcpy(rounded.data(), code, sizeof rounded);
  for (int i = 0; i < kBlock; ++i) v[i] = static_cast<A>(static_cast<float>(rounded[i]));
}

template <class A>
void encode_int8(const Block<A>& v, CodeWord* code) {
  A largest = 0;
  bool finite = true;
  for (int i = 0; i < kBlock; ++i) {
    finite &= std::abs(v[i]) <= std::numeric_limits<float>::max();
    largest = std::max(largest, std::abs(v[i]));
  }
  const float scale = finite ? static_cast<float>(largest) / 127.0f : std::numeric_limits<float>::quiet_NaN();
  code[0] = word_of(scale);
  std::array<std::int8_t, kCodedBlock> q{};
  if (scale > 0)
    for (int i = 0; i < kBlock; ++i)
      q[i] = static_cast<std::int8_t>(std::clamp<A>(std::nearbyint(v[i] / static_cast<A>(scale)), -127, 127));
  std::memcpy(code + 1, q.data(), sizeof q);
}
template <class A>
void decode_int8(const CodeWord* code, Block<A>& v) {
  const A scale = static_cast<A>(float_of(code[0]));
  std::array<std::int8_t, kCodedBlock> q;
  std::memcpy(q.data(), code + 1, sizeof q);
  for (int i = 0; i < kBlock; ++i) v[i] = scale * static_cast<A>(q[i]);
}

// Eight numbers, and as many of their bits.
template <class A>
struct Eight {
  using Bits = std::conditional_t<sizeof(A) == 8, std::int64_t, std::int32_t>;
  using Numbers [[gnu::vector_size(8 * sizeof(A))]] = A;
  using Masks [[gnu::vector_size(8 * sizeof(A))]] = Bits;
  using Sums [[gnu::vector_size(8 * sizeof(double))]] = double;
};

// The lowest bits of eight bytes, those of the first byte first: each product of a byte and a power of two that does
// not end in the last byte ends above it or carries nothing into it.
inline std::uint32_t bits_of_bytes(const std::uint8_t* bytes) {
  std::uint64_t eight;
  std::memcpy(&eight, bytes, sizeof eight);
  return static_cast<std::uint32_t>((eight * 0x0102040810204080u) >> 56);
}

// Both sides count their elements, so what lies beyond the end is no zero of either. Element i adds to sum i % 8 of its
// side and a zero to that of the other, which changes no bit of it.
template <class A>
void encode_onebit(const Block<A>& v, std::int64_t count, CodeWord* code) {
  using Sums = typename Eight<A>::Sums;
  Sums others{}, below{};
  std::array<std::uint8_t, kCodedBlock> negative;
  for (int i = 0; i < kBlock; ++i) negative[i] = v[i] < 0;
  for (int i = 0; i < kBlock; i += 8) {
    typename Eight<A>::Numbers x;
    std::memcpy(&x, &v[i], sizeof x);
    const Sums wide = __builtin_convertvector(x, Sums), zero{};
    others += wide < zero ? zero : wide;
    below += wide < zero ? wide : zero;
  }
  std::int64_t negatives = 0;
  for (int word = 0; word < kBlock / 32; ++word) {
    std::uint32_t signs = 0;
    for (int byte = 0; byte < 4; ++byte) signs |= bits_of_bytes(&negative[word * 32 + byte * 8]) << (8 * byte);
    negatives += std::popcount(signs);
    code[2 + word] = std::bit_cast<CodeWord>(signs);
  }
  const auto mean = [](const Sums& lanes, std::int64_t elements) {
    double sum = 0;
    for (int lane = 0; lane < 8; ++lane) sum += lanes[lane];
    return static_cast<float>(elements > 0 ? sum / static_cast<double>(elements) : 0);
  };
  code[0] = word_of(mean(others, count - negatives));
  code[1] = word_of(mean(below, negatives));
}
template <class A>
void decode_onebit(const CodeWord* code, Block<A>& v) {
  using Bits = typename Eight<A>::Bits;
  typename Eight<A>::Numbers others{}, below{};
  others += static_cast<A>(float_of(code[0]));
  below += static_cast<A>(float_of(code[1]));
  const typename Eight<A>::Masks place{1, 2, 4, 8, 16, 32, 64, 128};
  for (int i = 0; i < kBlock; i += 8) {
    const auto signs = static_cast<Bits>((std::bit_cast<std::uint32_t>(code[2 + i / 32]) >> (i % 32)) & 255u);
    const typename Eight<A>::Numbers eight = (place & signs) != 0 ? below : others;
    std::memcpy(&v[i], &eight, sizeof eight);
  }
}

template <class A>
void encode(BlockForm form, const Block<A>& v, std::int64_t count, CodeWord* code) {
  switch (form) {
    case BlockForm::bf16:
      return encode_bf16(v, code);
    case BlockForm::int8:
      return encode_int8(v, code);
    case BlockForm::onebit:
      return encode_onebit(v, count, code);
  }
}
template <class A>
void decode(BlockForm form, const CodeWord* code, Block<A>& v) {
  switch (form) {
    case BlockForm::bf16:
      return decode_bf16(code, v);
    case BlockForm::int8:
      return decode_int8(code, v);
    case BlockForm::onebit:
      return decode_onebit(code, v);
  }
}

}  // namespace lockstep::cpu
