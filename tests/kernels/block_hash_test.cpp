// The hash of a tensor's bytes is one value for any number of threads, and no flipped bit or moved block keeps it.
#include "kernels/block_hash.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "support/kernel_cases.h"
#include "support/tensor_box.h"

namespace lockstep::tests {
namespace {

using Words = std::array<std::int64_t, kBlockHashWords>;

class BlockHash : public ::testing::Test {
 protected:
  Words hash_of(const ConstTensor& x, int threads = 1) {
    const Tensor hash = box_.make(DType::i64, {kBlockHashWords});
    block_hash({.hash = hash, .x = x}, box_.stream(threads));
    Words words;
    std::memcpy(words.data(), hash.raw(), sizeof words);
    return words;
  }
  TensorBox box_;
};

TEST_F(BlockHash, IsTheSameForAnyNumberOfThreads) {
  const Tensor x = box_.make(DType::f32, {100'003}, normal());
  const Words one = hash_of(x);
  for (const int threads : {2, 3, 7}) EXPECT_EQ(hash_of(x, threads), one);
}

TEST_F(BlockHash, OfNothingIsZero) { EXPECT_EQ(hash_of(box_.make(DType::f32, {0})), (Words{0, 0})); }

TEST_F(BlockHash, ChangesWithEveryBit) {
  for (const DType type : kFloatTypes)
    for (const std::int64_t n : {1, 700, 2500}) {
      const Tensor x = box_.make(type, {n}, normal());
      const Words before = hash_of(x);
      auto* const bytes = static_cast<unsigned char*>(x.raw());
      for (std::int64_t bit = 0; bit < x.bytes() * 8; bit += n == 1 ? 1 : 37) {
        bytes[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
        EXPECT_NE(hash_of(x), before) << name_of(type) << ", bit " << bit;
        bytes[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
      }
      EXPECT_EQ(hash_of(x), before);
    }
}

TEST_F(BlockHash, ChangesWhenBlocksChangePlaces) {
  constexpr std::int64_t kBlock = kHashedBlock / 4;
  const Tensor x = box_.make(DType::f32, {3 * kBlock}, normal());
  const Words before = hash_of(x);
  auto* const values = x.data<float>();
  std::swap_ranges(values, values + kBlock, values + 2 * kBlock);
  EXPECT_NE(hash_of(x), before);
}

}  // namespace
}  // namespace lockstep::tests
