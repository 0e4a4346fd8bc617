#include "data/sampler.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/philox.h"

namespace lockstep {
namespace {

// Four make a good permutation of a large domain; small ones (N = 5 has halves of two bits) need more to mix.
constexpr std::uint64_t kRounds = 12;

}  // namespace

Sampler::Sampler(std::int64_t samples, std::uint64_t seed, Order order)
    : samples_(samples), key_(random_key(seed, "data/order")), order_(order) {
  LOCKSTEP_CHECK(samples >= 1 && samples <= std::int64_t{1} << 62, "a sampler of {} samples", samples);
  const auto bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(samples - 1)));
  half_bits_ = std::max(1, (bits + 1) / 2);
}

Sampler::Sampler(const Dataset& dataset, std::uint64_t seed)
    : Sampler(dataset.samples(), seed, dataset.endless() ? Order::in_order : Order::shuffled) {}

std::int64_t Sampler::sample_of(std::int64_t n) const {
  LOCKSTEP_CHECK(n >= 0, "sample number {}", n);
  if (order_ == Order::in_order) return n % samples_;
  const auto count = static_cast<std::uint64_t>(samples_), number = static_cast<std::uint64_t>(n);
  std::uint64_t at = number % count;
  // It began inside, so its cycle comes back inside: this ends, and no two numbers end at one.
  do at = permuted(at, number / count);
  while (at >= count);
  // A Feistel network of halves of two bits or more makes even permutations only; exchanging two samples in half of the
  // epochs gives the odd ones their share, which shows when N is small.
  if (at < 2 && count > 1) at ^= philox(key_, ~std::uint64_t{0}, number / count)[0] & 1;
  return static_cast<std::int64_t>(at);
}

std::uint64_t Sampler::permuted(std::uint64_t number, std::uint64_t epoch) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = number >> half_bits_, right = number & mask;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const std::uint64_t mixed = left ^ (philox(key_, right | round << 32, epoch)[0] & mask);  // right has 31 bits
    left = right;
    right = mixed;
  }
  return left << half_bits_ | right;
}

}  // namespace lockstep
