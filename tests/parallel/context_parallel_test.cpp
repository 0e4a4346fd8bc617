// A ring of ranks that exchange heads: each rank's tokens are attended to as in the whole sample.
#include "parallel/context_parallel.h"

#include <gtest/gtest.h>

#include "comm/ranks.h"
#include "support/whole_attention.h"

namespace lockstep::tests {
namespace {

constexpr std::int64_t B = WholeAttention::B, D = WholeAttention::D;

TEST(ContextParallel, SplitsTokensOverARingAndHeadsOverNeighbours) {
  struct Case {
    int ring, heads;
  };
  for (const auto& [ring, heads] : {Case{3, 1}, {1, 3}, {2, 3}, {3, 2}})
    for (const bool zigzag : {false, true}) {
      const ContextSplit any{.ring = ring, .heads = heads, .zigzag = zigzag};
      const std::int64_t T = 2 * any.multiple(), H = 2 * heads, K = heads;
      const WholeAttention whole(T, H, K);
      each_rank(ring * heads, [&, ring = ring, heads = heads](Communicator& ranks) {
        const ContextSplit split{.rank = ranks.rank(), .ring = ring, .heads = heads, .zigzag = zigzag};
        CpuDevice cpu;
        TensorBox box;
        const ContextParallel context(
            ranks, {.split = split, .sizes = {.B = B, .T = T, .heads = H, .keys = K, .width = D, .dtype = DType::f64}},
            cpu.memory());
        const std::int64_t t = split.tokens(T), share = split.share(T), segment = split.segment(T);
        const std::int64_t own_heads = H / heads, own_keys = K / heads;
        EXPECT_EQ(context.first_head(), split.heads_rank() * own_heads);
        const auto own = [&](const Tensor& of) {
          return box.make(DType::f64, {B, t, of.dim(2), D}, WholeAttention::own(of, split));
        };
        const auto room = [&](const Shape& shape) { return box.make(DType::f64, shape); };
        // Tokens to heads, attention in the ring, and its outputs to tokens again.
        Tensor q = own(whole.q), k = own(whole.k), v = own(whole.v), o = room({B, t, H, D});
        const Tensor mine = o;
        const std::vector<UlyssesExchange::Exchanged> in{{q, room({B, share, own_heads, D})},
                                                         {k, room({B, share, own_keys, D})},
                                                         {v, room({B, share, own_keys, D})}};
        const UlyssesExchange::Exchanged out{o, room({B, share, own_heads, D})};
        if (heads > 1) {
          context.heads().to_heads(in, cpu.stream());
          q = in[0].heads, k = in[1].heads, v = in[2].heads, o = out.heads;
        }
        AttentionDropout dropout = WholeAttention::kDropout;
        dropout.first_head += context.first_head();
        context.ring().forward({.o = o,
                                .lse = room({split.segments() * B * own_heads * segment}),
                                .q = q,
                                .k = k,
                                .v = v,
                                .scale = WholeAttention::kScale,
                                .dropout = dropout,
                                .part = room({B, segment, own_heads, D}),
                                .part_lse = room({B, own_heads, segment})},
                               cpu.stream());
        if (heads > 1) context.heads().to_tokens({&out, 1}, cpu.stream());
        const std::vector<double> got = TensorBox::read(mine), want = WholeAttention::own(whole.o, split);
        for (std::size_t i = 0; i < want.size(); ++i)
          ASSERT_NEAR(got[i], want[i], 1e-12) << ring << "x" << heads << ", element " << i;
      });
    }
}

}  // namespace
}  // namespace lockstep::tests
