// Random numbers from their definition (docs/numerics.md, Randomness): plain functions of a key and logical indices.
//
// They share with the library Philox, which has published answers of its own, and nothing else.
#pragma once
#include <cstdint>

#include "support/host_tensor.h"

namespace lockstep::tests::reference {

// Whether dropout keeps an element of an activation: word column % 4 of the counter (column / 4, position, sample) is
// at least p · 2^32.
bool keeps(std::uint64_t key, double probability, std::int64_t sample, std::int64_t position, std::int64_t column);
// And one of attention's probabilities, keyed on the sample with the head above its 40 bits, the query and the key.
bool keeps_probability(std::uint64_t key, double probability, std::int64_t sample, std::int64_t head,
                       std::int64_t query, std::int64_t key_position);

// Normal number `index` of a key's sequence, by Box-Muller in double.
double normal_of(std::uint64_t key, std::int64_t index);

// Of rows of `row` elements, `pitch` apart; 0: one run.
void init_normal(HostTensor& x, std::uint64_t key, std::int64_t first, double std, std::int64_t row = 0,
                 std::int64_t pitch = 0);

struct DropoutOptions {
  double probability;
  std::uint64_t key;
  std::int64_t first_sample = 0;
  std::int64_t first_row = 0;
};
void dropout(HostTensor& y, const HostTensor& x, const HostTensor& positions, const DropoutOptions& options);

}  // namespace lockstep::tests::reference
