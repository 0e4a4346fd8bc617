// The code of one block (block_codes.h), into and out of an array: what the kernels of codes share.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

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

// Both sides count their elements, so what lies beyond the end is no zero of either. Each of 8 lanes adds a zero to the
// sum of the side that a number is not on, which changes no bit of it.
template <class A>
void encode_onebit(const Block<A>& v, std::int64_t count, CodeWord* code) {
  constexpr int kLanes8 = 8;
  double others[kLanes8] = {}, below[kLanes8] = {};
  for (int i = 0; i < kBlock; i += kLanes8)
    for (int lane = 0; lane < kLanes8; ++lane) {
      const A x = v[i + lane];
      others[lane] += static_cast<double>(x < 0 ? A(0) : x);
      below[lane] += static_cast<double>(x < 0 ? x : A(0));
    }
  std::int64_t negatives = 0;
  for (int word = 0; word < kBlock / 32; ++word) {
    std::uint32_t signs = 0;
    for (int bit = 0; bit < 32; ++bit) signs |= static_cast<std::uint32_t>(v[word * 32 + bit] < 0) << bit;
    negatives += std::popcount(signs);
    code[2 + word] = std::bit_cast<CodeWord>(signs);
  }
  const auto mean = [](const double(&lanes)[kLanes8], std::int64_t elements) {
    double sum = 0;
    for (const double lane : lanes) sum += lane;
    return static_cast<float>(elements > 0 ? sum / static_cast<double>(elements) : 0);
  };
  code[0] = word_of(mean(others, count - negatives));
  code[1] = word_of(mean(below, negatives));
}
template <class A>
void decode_onebit(const CodeWord* code, Block<A>& v) {
  const A others = static_cast<A>(float_of(code[0])), below = static_cast<A>(float_of(code[1]));
  for (int word = 0; word < kBlock / 32; ++word) {
    const auto signs = std::bit_cast<std::uint32_t>(code[2 + word]);
    for (int bit = 0; bit < 32; ++bit) v[word * 32 + bit] = (signs >> bit) & 1 ? below : others;
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
