// What a block keeps from its forward to its backward when ranks cut it between them: without sequence parallelism the
// terms between products stay whole, with it all of them shrink.
#include <gtest/gtest.h>

#include "kept_bytes.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

// Of the first block.
std::int64_t kept_by_block(const ModelSpec& spec, std::int64_t B, std::int64_t T, const TensorSplit& split) {
  Execution how;
  how.split = split;
  return kept_bytes(Model(spec, B, T, DType::bf16, how), 1);
}

TEST(TensorParallelMemory, OfALlamaBlockIsItsFormula) {
  ModelSpec s = tiny_specs()[0].spec;
  s.heads = 16;
  s.kv_heads = 8;
  s.ffn_width = 64;
  const std::int64_t B = 2, T = 32, C = s.width, H = s.heads, K = s.kv_heads, D = s.head_width, F = s.ffn_width;
  // Of a token: the block's input, what the norms give, the sum in the middle, and a number for each norm; and what is
  // between products: projections, attention and its sums, gate and up, and what goes into the last product.
  const std::int64_t between_products = 4 * 2 * C + 2 * 4;
  const std::int64_t inside = 2 * (H + 2 * K) * D + 2 * H * D + 4 * H + 2 * 2 * F + 2 * F;
  for (const std::int64_t tp : {1, 2, 4, 8}) {
    EXPECT_EQ(kept_by_block(s, B, T, {.rank = 0, .size = tp}), B * T * (between_products + inside / tp)) << tp;
    EXPECT_EQ(kept_by_block(s, B, T, {.rank = 0, .size = tp, .sequence = tp > 1}),
              B * T * (between_products + inside) / tp)
        << tp;
  }
}

TEST(TensorParallelMemory, OfEveryFamilyHasNoWholeTermWithSequenceParallelism) {
  for (const NamedSpec& named : tiny_specs()) {
    ModelSpec s = named.spec;
    s.heads = s.kv_heads = 8;
    s.ffn_width = 64;
    const auto of = [&](std::int64_t tp, bool sequence) {
      return kept_by_block(s, 2, 32, {.rank = tp - 1, .size = tp, .sequence = sequence, .pieces = 2});
    };
    for (const std::int64_t tp : {2, 4, 8}) EXPECT_EQ(of(tp, true) * tp, of(1, false)) << named.name << " " << tp;
    // a + b / tp, with both of them there.
    const std::int64_t b = 4 * (of(2, false) - of(4, false)), a = of(1, false) - b;
    EXPECT_GT(a, 0) << named.name;
    EXPECT_GT(b, 0) << named.name;
    EXPECT_EQ(of(8, false), a + b / 8) << named.name;
  }
}

}  // namespace
}  // namespace lockstep::tests
