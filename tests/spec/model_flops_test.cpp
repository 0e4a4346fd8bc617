// The model's FLOPs, by hand: 6 N tokens of the products and 6 L H D T^2 B of causal attention.
#include "spec/model/model_flops.h"

#include <gtest/gtest.h>

#include "spec/model/model_spec.h"

namespace lockstep::tests {
namespace {

TEST(ModelFlops, AreThoseOfTheProductsAndOfCausalAttention) {
  ModelSpec spec = family_defaults(Family::llama);
  spec.vocabulary = 10;
  spec.layers = 2;
  spec.width = 8;
  spec.heads = 2;
  spec.kv_heads = 1;
  spec.head_width = 4;
  spec.ffn_width = 12;
  spec.tied = false;
  // A block: q 64, k and v 32 each, o 64, three of the feed-forward 96 each, two norms of 8; the last norm and the
  // head.
  const std::int64_t block = 64 + 32 + 32 + 64 + 3 * 96 + 16, all = 2 * block + 8 + 80;
  EXPECT_EQ(matmul_parameters(spec), all);
  EXPECT_EQ(model_flops(spec, 3, 5), 6.0 * static_cast<double>(all) * 15 + 6.0 * 2 * 2 * 4 * 25 * 3);
  spec.tied = true;  // the table is the head, and counted once
  EXPECT_EQ(matmul_parameters(spec), all);
}

}  // namespace
}  // namespace lockstep::tests
