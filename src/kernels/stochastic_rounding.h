// Rounding to bf16 by chance, so that what is too small to move a number still moves it on average.
//
// A bf16 has 8 bits: added to it and rounded to nearest, anything below 2^-9 of it is lost, each time anew. Rounded by
// chance, a value becomes one of its two neighbours, each the likelier the nearer it is, so that the expectation is the
// value itself and a sum of small steps arrives. A number that bf16 can hold stays as it is.
//
// The chance is no state: its bits are a function of a key, an element and a step (base/philox.h), the same on every
// device and in every layout.
#pragma once
#include <bit>
#include <cstdint>

#include "base/philox.h"
#include "tensor/dtype.h"

namespace lockstep {

// The bits for elements 4·group … 4·group + 3 at this step: a word each, its lower half for one number, its upper half
// for another.
constexpr Philox4 rounding_bits(std::uint64_t key, std::uint64_t group, std::uint64_t step) {
  return philox(key, group, step);
}

// Rounding drops sixteen bits; of all values of `bits` below 2^16, as many round away from zero as the dropped bits
// say. Beyond the largest number comes infinity; a NaN stays a NaN.
constexpr bf16 round_by_chance(float value, std::uint32_t bits) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(value);
  bf16 rounded(value);
  if ((u & 0x7fffffffu) <= 0x7f800000u) rounded.bits = static_cast<std::uint16_t>((u + bits) >> 16);
  return rounded;
}

}  // namespace lockstep
