// Choosing an algorithm by timing changes no result but its speed, leaves the operands alone, and can be repeated from
// what was kept of it.
#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "kernels/product_tuning.h"
#include "kernels/random.h"
#include "tensor/cuda/device.h"
#include "tensor/make_stream.h"
#include "tensor/transfer.h"

namespace lockstep {
namespace {

constexpr std::int64_t M = 192, N = 320, K = 256;

class Products : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
    memory_ = make_memory(Device::cuda, ledger_);
  }

  std::unique_ptr<Stream> stream() { return make_stream(*memory_, 1); }

  // c as it is after c = 3 and one product, added to it or put in its place.
  std::vector<double> product(Stream& stream, bool accumulate) {
    const Buffer a = memory_->allocate(M * K * 2, Tag::workspace), b = memory_->allocate(N * K * 2, Tag::workspace),
                 c = memory_->allocate(M * N * 4, Tag::workspace);
    const Tensor left = view(a, DType::bf16, {M, K}), right = view(b, DType::bf16, {N, K}),
                 out = view(c, DType::f32, {M, N});
    init_normal({.x = left.reshape({M * K}), .key = 1}, stream);
    init_normal({.x = right.reshape({N * K}), .key = 2}, stream);
    fill({.y = out, .value = 3}, stream);
    matmul({.c = out, .a = left, .b = right, .transpose_b = true, .accumulate = accumulate}, stream);
    return to_doubles(out, stream);
  }

  Ledger ledger_;
  std::unique_ptr<Memory> memory_;
};

void expect_near(const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-3) << i;
}

TEST_F(Products, TimingLeavesTheResultAsItWouldBe) {
  for (const bool accumulate : {false, true}) {
    const auto first = stream(), second = stream();
    Stream &plain = *first, &tuned = *second;
    set_product_choices({}, true, tuned);
    EXPECT_FALSE(new_product_choices(tuned));
    expect_near(product(tuned, accumulate), product(plain, accumulate));
    EXPECT_TRUE(new_product_choices(tuned));
    EXPECT_FALSE(new_product_choices(tuned)) << "only news is news";
    EXPECT_EQ(product_choices(tuned).size(), 1u);
    EXPECT_TRUE(product_choices(plain).empty());
  }
}

TEST_F(Products, WhatWasKeptGivesTheSameBitsAndIsNotTimedAgain) {
  const auto owned = stream();
  Stream& tuned = *owned;
  set_product_choices({}, true, tuned);
  const std::vector<double> first = product(tuned, false);
  const ProductChoices kept = product_choices(tuned);
  for (const bool autotune : {false, true}) {
    const auto other = stream();
    Stream& again = *other;
    set_product_choices(kept, autotune, again);
    EXPECT_EQ(product(again, false), first);
    EXPECT_FALSE(new_product_choices(again));
    EXPECT_EQ(product_choices(again), kept);
  }
}

TEST_F(Products, AFormIsTheSameAtAnyAddress) {
  const auto owned = stream();
  Stream& tuned = *owned;
  set_product_choices({}, true, tuned);
  product(tuned, false);
  const Buffer between = memory_->allocate(1 << 20, Tag::workspace);
  product(tuned, true);
  EXPECT_EQ(product_choices(tuned).size(), 1u);
}

TEST_F(Products, AKeptAlgorithmThatIsNoneIsAnError) {
  const auto owned = stream();
  Stream& tuned = *owned;
  set_product_choices({}, true, tuned);
  product(tuned, false);
  const std::string form = product_choices(tuned).begin()->first;
  for (const std::string& bad : {std::string("rubbish"), std::string(128, 'f'), std::string(128, '0')}) {
    const auto other = stream();
    set_product_choices({{form, bad}}, false, *other);
    EXPECT_THROW(product(*other, false), EnvironmentError) << bad;
  }
}

TEST_F(Products, TheirSiteIsKnown) {
  const auto owned = stream();
  EXPECT_EQ(product_site(*owned).gpu, cuda::gpu_name());
  EXPECT_EQ(product_site(*owned).library.substr(0, 9), "cuBLASLt ");
}

}  // namespace
}  // namespace lockstep
