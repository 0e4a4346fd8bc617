// Ring attention over 1, 2, 3 and 5 ranks, forward and backward: what attention of the whole sample gives.
#include "parallel/ring_attention.h"

#include <gtest/gtest.h>

#include "comm/ranks.h"
#include "support/whole_attention.h"

namespace lockstep::tests {
namespace {

using Values = std::vector<double>;

// One rank's outputs and gradients, one after the other.
struct RingResult {
  Values o, dq, dk, dv;
  bool operator==(const RingResult&) const = default;
};

RingResult attend_in_ring(Communicator& ranks, const ContextSplit& split, bool overlap, const WholeAttention& whole) {
  constexpr std::int64_t B = WholeAttention::B, D = WholeAttention::D;
  const std::int64_t T = whole.T, H = whole.H, K = whole.K, t = split.tokens(T), segment = split.segment(T);
  TensorBox box;
  CpuDevice cpu;
  const auto own = [&](const Tensor& of) {
    return box.make(DType::f64, {B, t, of.dim(2), D}, WholeAttention::own(of, split));
  };
  const auto room = [&](const Shape& shape) { return box.make(DType::f64, shape); };
  const Tensor q = own(whole.q), k = own(whole.k), v = own(whole.v), d_o = own(whole.d_o);
  const Tensor o = room({B, t, H, D}), dq = room({B, t, H, D}), dk = room({B, t, K, D}), dv = room({B, t, K, D});
  const Tensor lse = room({split.segments() * B * H * segment});
  const RingAttention ring(ranks, split, overlap,
                           {.B = B, .T = T, .heads = H, .keys = K, .width = D, .dtype = DType::f64}, cpu.memory());
  ring.forward({.o = o,
                .lse = lse,
                .q = q,
                .k = k,
                .v = v,
                .scale = WholeAttention::kScale,
                .dropout = WholeAttention::kDropout,
                .part = room({B, segment, H, D}),
                .part_lse = room({B, H, segment})},
               box.stream());
  RingAttention::Turning turning = ring.begin(k, v, box.stream());
  ring.backward({.dq = dq,
                 .dk = dk,
                 .dv = dv,
                 .d_o = d_o,
                 .q = q,
                 .k = k,
                 .v = v,
                 .o = o,
                 .lse = lse,
                 .scale = WholeAttention::kScale,
                 .dropout = WholeAttention::kDropout,
                 .part_dq = room({B, segment, H, D}),
                 .sums = room({4 * B * t * K * D})},
                turning, box.stream());
  return {TensorBox::read(o), TensorBox::read(dq), TensorBox::read(dk), TensorBox::read(dv)};
}

void expect_near(const Values& got, const Values& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-12) << what << ", element " << i;
}

TEST(RingAttention, GivesWhatAttentionOfTheWholeSampleGives) {
  for (const int ranks : {1, 2, 3, 5})
    for (const bool zigzag : {false, true}) {
      const ContextSplit any{.ring = ranks, .zigzag = zigzag};
      const WholeAttention whole(3 * any.multiple(), 4, 2);
      each_rank(ranks, [&](Communicator& group) {
        const ContextSplit split{.rank = group.rank(), .ring = ranks, .zigzag = zigzag};
        const RingResult found = attend_in_ring(group, split, true, whole);
        const std::string what = "rank " + std::to_string(group.rank()) + " of " + std::to_string(ranks);
        expect_near(found.o, WholeAttention::own(whole.o, split), what + ": o");
        expect_near(found.dq, WholeAttention::own(whole.dq, split), what + ": dq");
        expect_near(found.dk, WholeAttention::own(whole.dk, split), what + ": dk");
        expect_near(found.dv, WholeAttention::own(whole.dv, split), what + ": dv");
        EXPECT_TRUE(attend_in_ring(group, split, false, whole) == found) << "overlap changes no bit";
      });
    }
}

}  // namespace
}  // namespace lockstep::tests
