// Attention's dropout is keyed on (sample, head, query, key): any slice of these sees the mask that the whole sees.
#include <gtest/gtest.h>

#include "kernels/attention.h"
#include "support/kernel_cases.h"
#include "support/reference_ops.h"
#include "support/tensor_box.h"

namespace lockstep::tests {
namespace {

class AttentionMask : public ::testing::Test {
 protected:
  static constexpr double p = 0.3;

  // The mask itself: zero queries make all probabilities equal, and one-hot values let each show in a column of its
  // own. As many keys as columns at most.
  std::vector<double> mask(std::int64_t batch, std::int64_t queries, std::int64_t keys, std::int64_t heads,
                           AttentionDropout dropout, DType type = DType::f64) {
    const std::int64_t width = keys;
    std::vector<double> v(static_cast<std::size_t>(batch * keys * heads * width));
    for (std::int64_t i = 0; i < batch * keys * heads; ++i)
      v[static_cast<std::size_t>(i * width + i / heads % keys)] = static_cast<double>(keys);
    const Shape q{batch, queries, heads, width}, k{batch, keys, heads, width};
    const Tensor o = box_.make(type, q);
    attention_forward({.o = o,
                       .lse = box_.make(accumulator_of(type), {batch, heads, queries}),
                       .q = box_.make(type, q, constant(0)),
                       .k = box_.make(type, k, normal()),
                       .v = box_.make(type, k, v),
                       .scale = 1,
                       .causal = false,
                       .dropout = dropout},
                      box_.stream(2));
    // From (B, T, H, S) to (B, H, T, S), 0 or 1 / (1 - p).
    std::vector<double> mask(static_cast<std::size_t>(batch * heads * queries * keys));
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t t = 0; t < queries; ++t)
          for (std::int64_t s = 0; s < keys; ++s)
            mask[static_cast<std::size_t>(((b * heads + h) * queries + t) * keys + s)] =
                box_.read(o, ((b * queries + t) * heads + h) * width + s);
    return mask;
  }

  TensorBox box_;
};

TEST_F(AttentionMask, KeepsAsManyAsItShouldAndScalesThem) {
  for (const double probability : {0.1, 0.5, 0.9}) {
    const std::vector<double> all = mask(2, 100, 100, 3, {.probability = probability, .key = 4});
    double kept = 0;
    for (const double v : all) {
      if (v == 0) continue;
      ++kept;
      EXPECT_NEAR(v, 1 / (1 - probability), 1e-12);
    }
    const double count = static_cast<double>(all.size());
    EXPECT_NEAR(kept / count, 1 - probability, 5 * std::sqrt(probability * (1 - probability) / count));
  }
}

TEST_F(AttentionMask, OfEverySliceIsTheSliceOfTheWhole) {
  constexpr std::int64_t B = 3, T = 80, S = 90, H = 4;
  const AttentionDropout whole_of{
      .probability = p, .key = 4, .first_sample = 5, .first_head = 2, .first_query = 7, .first_key = 11};
  const std::vector<double> whole = mask(B, T, S, H, whole_of);
  struct Slice {
    std::int64_t b, bs, h, hs, t, ts, s, ss;
  };
  for (const Slice& x : {Slice{1, 2, 0, H, 0, T, 0, S},
                         {0, B, 3, 1, 0, T, 0, S},
                         {0, B, 0, H, 33, 40, 0, S},
                         {0, B, 0, H, 0, T, 17, 70},
                         {2, 1, 1, 2, 64, 16, 64, 5}}) {
    AttentionDropout dropout = whole_of;
    dropout.first_sample += x.b, dropout.first_head += x.h, dropout.first_query += x.t, dropout.first_key += x.s;
    const std::vector<double> part = mask(x.bs, x.ts, x.ss, x.hs, dropout);
    for (std::int64_t b = 0; b < x.bs; ++b)
      for (std::int64_t h = 0; h < x.hs; ++h)
        for (std::int64_t t = 0; t < x.ts; ++t)
          for (std::int64_t s = 0; s < x.ss; ++s)
            ASSERT_EQ(part[((b * x.hs + h) * x.ts + t) * x.ss + s] != 0,
                      whole[(((x.b + b) * H + x.h + h) * T + x.t + t) * S + x.s + s] != 0)
                << "sample " << b << " head " << h << " query " << t << " key " << s;
  }
}

TEST_F(AttentionMask, IsIndependentOfThatOfOtherKeysSamplesHeadsAndQueries) {
  const AttentionDropout base{.probability = p, .key = 4};
  const std::vector<double> mine = mask(1, 100, 100, 1, base);
  const double count = static_cast<double>(mine.size()), agree = p * p + (1 - p) * (1 - p);
  for (int which = 0; which < 5; ++which) {
    AttentionDropout moved = base;
    if (which == 0) moved.key = 5;
    if (which == 1) moved.first_sample = 1;
    if (which == 2) moved.first_head = 1;
    if (which == 3) moved.first_query = 100;
    if (which == 4) moved.first_key = 100;
    const std::vector<double> other = mask(1, 100, 100, 1, moved);
    double same = 0;
    for (std::size_t i = 0; i < mine.size(); ++i) same += (mine[i] != 0) == (other[i] != 0);
    EXPECT_NEAR(same / count, agree, 5 * std::sqrt(agree * (1 - agree) / count)) << which;
  }
}

TEST_F(AttentionMask, IsTheSameInEveryType) {
  const AttentionDropout dropout{.probability = p, .key = 4};
  const std::vector<double> exact = mask(1, 70, 70, 2, dropout);
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    const std::vector<double> got = mask(1, 70, 70, 2, dropout, type);
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i] != 0, exact[i] != 0) << name_of(type);
  }
}

// With the mask known, both directions are the reference's: the probabilities are masked after the softmax, so lse is
// untouched.
TEST_F(AttentionMask, MultipliesTheProbabilitiesForwardAndBackward) {
  constexpr std::int64_t B = 2, T = 70, S = 90, H = 4, K = 2, D = 16;
  const AttentionDropout dropout{.probability = p, .key = 9, .first_sample = 1, .first_query = 3};
  const std::vector<double> keep = mask(B, T, S, H, dropout);
  for (const DType type : kFloatTypes)
    for (const bool causal : {true, false}) {
      const DType wide = accumulator_of(type);
      const Shape q_shape{B, T, H, D}, k_shape{B, S, K, D}, rows{B, H, T};
      const auto host = [&](const Tensor& t, const char* name) {
        HostTensor h(name, t.shape(), t.dtype());
        h.value = box_.read(t);
        return h;
      };
      const Tensor q = box_.make(type, q_shape, normal(), 1), k = box_.make(type, k_shape, normal(), 2);
      const Tensor v = box_.make(type, k_shape, normal(), 3), d_o = box_.make(type, q_shape, normal(), 4);
      const Tensor o = box_.make(type, q_shape), lse = box_.make(wide, rows);
      const Tensor dq = box_.make(type, q_shape), dk = box_.make(type, k_shape), dv = box_.make(type, k_shape);
      attention_forward(
          {.o = o, .lse = lse, .q = q, .k = k, .v = v, .scale = 0.25, .causal = causal, .dropout = dropout},
          box_.stream());
      attention_backward({.dq = dq,
                          .dk = dk,
                          .dv = dv,
                          .d_o = d_o,
                          .q = q,
                          .k = k,
                          .v = v,
                          .o = o,
                          .lse = lse,
                          .scale = 0.25,
                          .causal = causal,
                          .dropout = dropout},
                         box_.stream());
      const reference::AttentionOptions options{.scale = 0.25, .causal = causal, .mask = &keep};
      const HostTensor hq = host(q, "q"), hk = host(k, "k"), hv = host(v, "v"), ho = host(o, "o"),
                       hlse = host(lse, "lse");
      HostTensor want_o = ho, want_lse = hlse, want_dq = host(dq, "dq"), want_dk = host(dk, "dk"),
                 want_dv = host(dv, "dv");
      reference::attention_forward(want_o, want_lse, hq, hk, hv, options);
      EXPECT_EQ(difference(ho, want_o, wide), "");
      EXPECT_EQ(difference(hlse, want_lse, wide), "");
      reference::attention_backward({want_dq, want_dk, want_dv}, host(d_o, "d_o"), {hq, hk, hv, ho, hlse}, options);
      EXPECT_EQ(difference(host(dq, "dq"), want_dq, wide), "");
      EXPECT_EQ(difference(host(dk, "dk"), want_dk, wide), "");
      EXPECT_EQ(difference(host(dv, "dv"), want_dv, wide), "");
    }
}

}  // namespace
}  // namespace lockstep::tests
