#include "support/reference_random.h"

#include <numbers>

#include "base/philox.h"

namespace lockstep::tests::reference {

bool keeps(std::uint64_t key, double probability, std::int64_t sample, std::int64_t position, std::int64_t column) {
  const auto low = static_cast<std::uint64_t>(column / 4) + (static_cast<std::uint64_t>(position) << 32);
  const Philox4 words = philox(key, low, static_cast<std::uint64_t>(sample));
  return words[static_cast<std::size_t>(column % 4)] >= std::round(probability * 4294967296.0);
}

bool keeps_probability(std::uint64_t key, double probability, std::int64_t sample, std::int64_t head,
                       std::int64_t query, std::int64_t key_position) {
  return keeps(key, probability, sample + (head << 40), query, key_position);
}

double normal_of(std::uint64_t key, std::int64_t index) {
  const Philox4 words = philox(key, static_cast<std::uint64_t>(index / 2));
  // 53 bits of each half; the first uniform number is in (0, 1], the second in [0, 1).
  const auto half = [&](std::size_t at) {
    return static_cast<double>(((static_cast<std::uint64_t>(words[at]) << 32) + words[at + 1]) >> 11);
  };
  const double first = (half(0) + 1) / 9007199254740992.0, second = half(2) / 9007199254740992.0;
  const double radius = std::sqrt(-2 * std::log(first)), angle = 2 * std::numbers::pi * second;
  return radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

void init_normal(HostTensor& x, std::uint64_t key, std::int64_t first, double std, std::int64_t row,
                 std::int64_t pitch) {
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    const double value = std * normal_of(key, first + (row == 0 ? i : i / row * pitch + i % row));
    x.set(i, value, std::abs(value));
  }
}

void dropout(HostTensor& y, const HostTensor& x, const HostTensor& positions, const DropoutOptions& options) {
  const std::vector<double> in = x.value;  // y may be x
  const std::int64_t width = x.dim(1), length = positions.elements();
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    const std::int64_t row = options.first_row + i / width;
    const bool kept = keeps(options.key, options.probability, options.first_sample + row / length,
                            static_cast<std::int64_t>(positions[row % length]), i % width);
    const double value = kept ? in[static_cast<std::size_t>(i)] / (1 - options.probability) : 0;
    y.set(i, value, std::abs(value));
  }
}

}  // namespace lockstep::tests::reference
