// What attention's backward takes beside its operands on a GPU is known from its sizes alone, and stays in bounds.
#include <gtest/gtest.h>

#include "kernels/cuda/attention/cudnn_attention_parts.h"

namespace lockstep::tests {
namespace {

constexpr AttentionSizes kMultiHead{.B = 8, .T = 2048, .S = 2048, .H = 32, .K = 32, .D = 64, .dtype = DType::bf16};
constexpr std::int64_t kFew = 1 << 20;  // margins

AttentionSizes with(std::int64_t B, std::int64_t H, std::int64_t K, std::int64_t T, std::int64_t D,
                    bool deterministic = true) {
  return {.B = B, .T = T, .S = T, .H = H, .K = K, .D = D, .dtype = DType::bf16, .deterministic = deterministic};
}

TEST(AttentionWorkspace, IsNoneWhereThePlainKernelsWork) {
  EXPECT_EQ(attention_workspace(Device::cpu, kMultiHead), 0);
  EXPECT_EQ(attention_workspace(Device::meta, kMultiHead), 0);
  EXPECT_GT(attention_workspace(Device::cuda, kMultiHead), 0);
  const auto none = [](auto change) {
    AttentionSizes sizes = kMultiHead;
    change(sizes);
    return attention_workspace(Device::cuda, sizes) == 0;
  };
  EXPECT_TRUE(none([](AttentionSizes& s) { s.dtype = DType::f32; }));
  EXPECT_TRUE(none([](AttentionSizes& s) { s.causal = true, s.S = 2 * s.T, s.dtype = DType::f16; }));
  EXPECT_TRUE(none([](AttentionSizes& s) { s.documents = true, s.dtype = DType::f16; }));
  EXPECT_TRUE(none([](AttentionSizes& s) { s.dropout = true; }));
  EXPECT_TRUE(none([](AttentionSizes& s) { s.T = 1; }));
  EXPECT_TRUE(none([](AttentionSizes& s) { s.T = s.S = 63; }));
  EXPECT_TRUE(none([](AttentionSizes& s) { s.D = 100; }));
  EXPECT_TRUE(none([](AttentionSizes& s) { s.D = 136; }));
  EXPECT_TRUE(none([](AttentionSizes& s) { s.B = 0; }));
  EXPECT_FALSE(none([](AttentionSizes& s) { s.dtype = DType::f16; }));
  EXPECT_FALSE(none([](AttentionSizes& s) { s.T = s.S = 201; }));
  EXPECT_FALSE(none([](AttentionSizes& s) { s.causal = false; }));
  EXPECT_FALSE(none([](AttentionSizes& s) { s.causal = false, s.S = 3 * s.T, s.dtype = DType::f16; }));
  EXPECT_FALSE(none([](AttentionSizes& s) { s.documents = true; }));
}

// A ring's: half as many queries as keys, all of which they see.
AttentionSizes pair(std::int64_t D, bool deterministic) {
  AttentionSizes sizes = with(1, 32, 8, 4096, D, deterministic);
  sizes.S = 8192;
  sizes.causal = false;
  return sizes;
}

// The figures are what plans of cuDNN 9.19 ask for on an H200; of pairs, 9.14.
TEST(AttentionWorkspace, HoldsWhatTheLibraryAsksFor) {
  struct Asked {
    AttentionSizes sizes;
    std::int64_t bytes;
  };
  for (const auto& [sizes, bytes] :
       {Asked{with(8, 32, 32, 2048, 64), 2147483904}, Asked{with(4, 32, 8, 4096, 128), 4563403008},
        Asked{with(1, 32, 8, 32768, 64), 68987912448}, Asked{with(1, 2, 2, 65, 64), 65792},
        Asked{with(2, 4, 2, 257, 128), 3019008}, Asked{with(4, 32, 8, 4096, 128, false), 268435712},
        Asked{with(1, 4, 4, 200, 64, false), 256}, Asked{pair(64, true), 2214592512},
        Asked{pair(128, true), 2281701376}, Asked{pair(64, false), 67108864}, Asked{pair(128, false), 134217728}}) {
    const cuda::AttentionReserve whole = cuda::attention_reserve(sizes, {sizes.B, sizes.K});
    EXPECT_GE(whole.plan, bytes);
    EXPECT_LE(whole.plan, bytes + bytes / 3 + kFew);
    EXPECT_EQ(whole.accumulator, sizes.deterministic ? 0 : 4 * sizes.B * sizes.H * sizes.T * sizes.D);
  }
}

TEST(AttentionWorkspace, IsBoundedByParts) {
  const auto part = [](const AttentionSizes& sizes, std::int64_t bound = cuda::kDeterministicWorkspace) {
    const cuda::AttentionPart p = cuda::attention_part(sizes, bound);
    EXPECT_EQ(sizes.B % p.B, 0);
    EXPECT_EQ(sizes.K % p.K, 0);
    EXPECT_TRUE(p.B == 1 || p.K == sizes.K);
    return std::pair{p.B, p.K};
  };
  using Part = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(part(with(2, 32, 32, 1024, 64)), Part(2, 32));        // all of it
  EXPECT_EQ(part(with(8, 32, 32, 2048, 64)), Part(4, 32));        // samples that divide the batch
  EXPECT_EQ(part(with(7, 32, 32, 2048, 64)), Part(1, 32));        // 7 is prime
  EXPECT_EQ(part(with(4, 32, 8, 4096, 128)), Part(1, 8));         // one sample
  EXPECT_EQ(part(with(4, 32, 8, 8192, 64)), Part(1, 2));          // heads of one sample
  EXPECT_EQ(part(with(1, 32, 8, 32768, 64)), Part(1, 1));         // one head, whatever it takes
  EXPECT_EQ(part(with(8, 32, 8, 32768, 64, false)), Part(8, 8));  // no need of T²
  EXPECT_EQ(part(with(6, 4, 2, 200, 64), std::int64_t{1} << 40), Part(6, 2));
  EXPECT_EQ(part(with(6, 4, 2, 200, 64), 1), Part(1, 1));
  for (const AttentionSizes& sizes : {with(8, 32, 32, 2048, 96), with(7, 32, 32, 2048, 96), with(4, 32, 8, 4096, 112)})
    EXPECT_LE(attention_workspace(Device::cuda, sizes), cuda::kDeterministicWorkspace);
}

// Where the kernel of our own does the work, it needs no square of T.
TEST(AttentionWorkspace, IsInStepWithTokensOnHopper) {
  const AttentionSizes s = with(1, 32, 8, 32768, 64);
  EXPECT_LE(attention_workspace(Device::cuda, s), 5 * s.B * s.H * s.T * s.D);
  EXPECT_GT(cuda::attention_reserve(s, cuda::attention_part(s)).total(), std::int64_t{8} << 30);
}

}  // namespace
}  // namespace lockstep::tests
