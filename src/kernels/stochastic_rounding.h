// Rounding to bf16 by chance, so that what is too small to move a number still moves it on average.
//
// A bf16 has 8 bits: added to it and rounded to nearest, anything below 2^-9 of it is lost, each time anew. Rounded by
// chance, a value becomes one of its two neighbours, each the likelier the nearer it is, so that the expectation is the
// value itself and a sum of small steps arrives. A number that bf16 can hold stays as it is.
//
// The chance is no state: its bits are a function of the tensor, the element of the whole tensor, the step and what is
// rounded (base/philox.h), the same on every device and in every layout. A flat buffer holds several tensors or parts
// of them, so a list of RoundingRuns says which element is at which place; it is looked up once for four places, and
// costs a comparison there unless a tensor's rows are apart.
#pragma once
#include <bit>
#include <cstdint>

#include "base/philox.h"
#include "tensor/dtype.h"

namespace lockstep {

// Elements of one tensor in a flat buffer: rows of `to - from` places, each a pitch after the row before. Runs whose
// rows alternate share begin, end and pitch and differ in their columns [from, to). A list of runs is in the order of
// begin, and of from; places that are of no run hold zeros, which no rounding changes.
struct RoundingRun {
  std::int64_t begin, end;  // places, from the beginning of row 0
  std::int64_t pitch;
  std::int64_t from, to;
  std::uint64_t key;           // the tensor's
  std::int64_t element;        // that is in row 0, column `from`
  std::int64_t element_pitch;  // from row to row, in the tensor

  // Elements [element, element + count) of a tensor, at places [begin, begin + count).
  static constexpr RoundingRun flat(std::int64_t begin, std::int64_t count, std::uint64_t key,
                                    std::int64_t element = 0) {
    return {begin, begin + count, count, 0, count, key, element, 0};
  }
};

// What is rounded: AdamW's m and v, or the momentum, take the halves of one word; a master weight has its own.
enum class RoundingStream : std::uint64_t { moments, master };

// The bits for elements 4·group … 4·group + 3 of a tensor at this step: a word each.
constexpr std::uint64_t rounding_counter(std::uint64_t step, RoundingStream stream) {
  return step | static_cast<std::uint64_t>(stream) << 62;
}
constexpr Philox4 rounding_bits(std::uint64_t key, std::uint64_t group, std::uint64_t step, RoundingStream stream) {
  return philox(key, group, rounding_counter(step, stream));
}

// Which element is at a place, and how many places from this one on hold the elements after it.
struct RoundedElement {
  std::uint64_t key;
  std::int64_t element, left;
};

// `at` is where the place before was found, or 0: places are asked for in ascending order. One that is of no run is an
// element of tensor 0.
constexpr RoundedElement rounded_element(const RoundingRun* runs, int count, int& at, std::int64_t place) {
  while (at < count && place >= runs[at].end) ++at;
  if (at == count) return {0, place, INT64_MAX};
  const RoundingRun& first = runs[at];
  if (place < first.begin) return {0, place, first.begin - place};
  std::int64_t row = 0, column = place - first.begin;
  if (column >= first.pitch) {
    row = (column | first.pitch) >> 32 == 0
              ? static_cast<std::int64_t>(static_cast<std::uint32_t>(column) / static_cast<std::uint32_t>(first.pitch))
              : column / first.pitch;
    column -= row * first.pitch;
  }
  for (int i = at; i < count && runs[i].begin == first.begin; ++i) {
    const RoundingRun& run = runs[i];
    if (column >= run.from && column < run.to)
      return {run.key, run.element + row * run.element_pitch + column - run.from, run.to - column};
  }
  return {0, place, 1};
}

// The words of elements [element, element + 4).
constexpr Philox4 words_of_four(const RoundedElement& e, std::uint64_t step, RoundingStream stream) {
  const auto group = static_cast<std::uint64_t>(e.element) / 4;
  const Philox4 a = rounding_bits(e.key, group, step, stream);
  const int skipped = static_cast<int>(e.element % 4);
  if (skipped == 0) return a;
  const Philox4 b = rounding_bits(e.key, group + 1, step, stream);
  if (skipped == 1) return {a[1], a[2], a[3], b[0]};
  if (skipped == 2) return {a[2], a[3], b[0], b[1]};
  return {a[3], b[0], b[1], b[2]};
}

// The word of one element. Words are chosen by comparison: an index that is not constant would put them into a GPU's
// local memory.
constexpr std::uint32_t word_of_one(const RoundedElement& e, std::uint64_t step, RoundingStream stream) {
  const Philox4 a = rounding_bits(e.key, static_cast<std::uint64_t>(e.element) / 4, step, stream);
  const int skipped = static_cast<int>(e.element % 4);
  return skipped == 0 ? a[0] : skipped == 1 ? a[1] : skipped == 2 ? a[2] : a[3];
}

// The words of four places from `place` on, of the streams that are asked for; see rounded_element().
struct RoundingWords {
  Philox4 moments, master;
};
template <bool OfMoments, bool OfMaster>
constexpr RoundingWords rounding_words(const RoundingRun* runs, int count, int& at, std::int64_t place,
                                       std::uint64_t step) {
  const RoundedElement e = rounded_element(runs, count, at, place);
  const bool together = e.left >= 4;
  RoundedElement f{}, g{}, h{};
  if (!together) {
    f = rounded_element(runs, count, at, place + 1);
    g = rounded_element(runs, count, at, place + 2);
    h = rounded_element(runs, count, at, place + 3);
  }
  const auto words = [&](RoundingStream stream) -> Philox4 {
    if (together) return words_of_four(e, step, stream);
    return {word_of_one(e, step, stream), word_of_one(f, step, stream), word_of_one(g, step, stream),
            word_of_one(h, step, stream)};
  };
  RoundingWords all{};
  if constexpr (OfMoments) all.moments = words(RoundingStream::moments);
  if constexpr (OfMaster) all.master = words(RoundingStream::master);
  return all;
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
