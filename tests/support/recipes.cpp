#include "support/recipes.h"

#include <cmath>
#include <numbers>

#include "base/philox.h"

namespace lockstep::tests {

double uniform_number(std::uint64_t seed, std::int64_t i) {
  const Philox4 words = philox(seed, static_cast<std::uint64_t>(i), 0x7e57);
  const std::uint64_t bits = (static_cast<std::uint64_t>(words[1]) << 32) | words[0];
  return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
}

// Four uniform numbers added up: variance 1, and a bell close enough, at a tenth of the price of logarithms.
double normal_number(std::uint64_t seed, std::int64_t i) {
  const Philox4 words = philox(seed, static_cast<std::uint64_t>(i), 0xbe11);
  const double sum = static_cast<double>(words[0]) + words[1] + words[2] + words[3];
  return (sum * 0x1p-32 - 2) * std::numbers::sqrt3;
}

Recipe normal(double scale, double mean) {
  return [=](std::uint64_t seed, std::int64_t i) { return mean + scale * normal_number(seed, i); };
}

Recipe magnitudes(double low, double high) {
  return [=](std::uint64_t seed, std::int64_t i) {
    const double size = std::exp2(low + (high - low) * uniform_number(seed, 2 * i));
    return uniform_number(seed, 2 * i + 1) < 0.5 ? -size : size;
  };
}

Recipe constant(double value) {
  return [=](std::uint64_t, std::int64_t) { return value; };
}

Recipe indices(std::int64_t limit) {
  return [=](std::uint64_t seed, std::int64_t i) {
    // A third of the entries crowd on a few indices, the rest go anywhere; the last index is always among the first
    // few.
    if (i == 2) return static_cast<double>(limit - 1);
    const double where = uniform_number(seed, 2 * i);
    const double range = i % 3 == 0 ? std::min<double>(3, static_cast<double>(limit)) : static_cast<double>(limit);
    return std::floor(where * range);
  };
}

Recipe targets(std::int64_t limit, std::int64_t every, double ignored) {
  return [=, any = indices(limit)](std::uint64_t seed, std::int64_t i) {
    return every > 0 && i % every == every - 1 ? ignored : any(seed, i);
  };
}

Recipe positions(std::int64_t first, std::int64_t step) {
  return [=](std::uint64_t, std::int64_t i) { return static_cast<double>(first + i * step); };
}

Recipe listed(std::vector<double> values) {
  return [values = std::move(values)](std::uint64_t, std::int64_t i) { return values.at(static_cast<std::size_t>(i)); };
}

}  // namespace lockstep::tests
