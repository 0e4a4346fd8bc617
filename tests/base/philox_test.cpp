// Philox is the published function: the known answers of its authors' library, and keys that keep uses apart.
#include "base/philox.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>

namespace lockstep {
namespace {

TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_EQ(philox(0, 0, 0), (Philox4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ull, ~0ull, ~0ull), (Philox4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // The digits of pi; words are low first.
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (Philox4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, IsKnownWhenCompiling) { static_assert(philox(0, 0)[0] == 0x6627e8d5); }

TEST(Philox, ChangesAboutHalfOfItsBitsWithAnyBitOfKeyOrCounter) {
  const auto distance = [](const Philox4& a, const Philox4& b) {
    int bits = 0;
    for (int i = 0; i < 4; ++i) bits += std::popcount(a[i] ^ b[i]);
    return bits;
  };
  const Philox4 base = philox(1, 2, 3);
  for (int bit = 0; bit < 64; ++bit) {
    const std::uint64_t flip = 1ull << bit;
    for (const Philox4& other : {philox(1 ^ flip, 2, 3), philox(1, 2 ^ flip, 3), philox(1, 2, 3 ^ flip)}) {
      EXPECT_GT(distance(base, other), 32) << "bit " << bit;
      EXPECT_LT(distance(base, other), 96) << "bit " << bit;
    }
  }
}

TEST(RandomKey, DiffersForEveryUseAndSeed) {
  std::set<std::uint64_t> keys;
  for (std::uint64_t seed = 0; seed < 50; ++seed)
    for (const char* use : {"", "a", "b", "ab", "ba", "init/model.norm.weight", "init/model.norm.weighu", "dropout/0"})
      keys.insert(random_key(seed, use));
  EXPECT_EQ(keys.size(), 50u * 8u);
}

TEST(RandomKey, IsAPureFunction) { EXPECT_EQ(random_key(7, "data order"), random_key(7, "data order")); }

}  // namespace
}  // namespace lockstep
