// Philox 4x32-10: random numbers as a pure function of (key, counter).
//
// Whatever is random in training (initial weights, dropout masks, data order) is asked for by logical index, never
// drawn from a sequence, so that no layout, thread or restart can change it (docs/design.md, rule 2). The function is
// the published one (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"), the same that cuRAND calls
// Philox4_32_10.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep {

using Philox4 = std::array<std::uint32_t, 4>;

// Four independent 32-bit words for this 128-bit counter (low word first) under this 64-bit key.
constexpr Philox4 philox(std::uint64_t key, std::uint64_t counter_low, std::uint64_t counter_high = 0) {
  Philox4 c{static_cast<std::uint32_t>(counter_low), static_cast<std::uint32_t>(counter_low >> 32),
            static_cast<std::uint32_t>(counter_high), static_cast<std::uint32_t>(counter_high >> 32)};
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xD2511F53ull * c[0], p1 = 0xCD9E8D57ull * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// A key of its own for each named use of one seed ("init/model.norm.weight", "dropout/…"): 64-bit FNV-1a of the name,
// mixed with the seed by one Philox call so that near seeds give far keys.
constexpr std::uint64_t random_key(std::uint64_t seed, std::string_view use) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char ch : use) hash = (hash ^ static_cast<unsigned char>(ch)) * 0x100000001b3ull;
  const Philox4 mixed = philox(seed, hash);
  return (static_cast<std::uint64_t>(mixed[1]) << 32) | mixed[0];
}

}  // namespace lockstep
