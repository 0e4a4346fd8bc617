// Numbers at the edges: large, tiny, equal and zero rows give what mathematics gives, not overflow or nonsense.
#include <gtest/gtest.h>

#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/gelu.h"
#include "kernels/layernorm.h"
#include "kernels/rmsnorm.h"
#include "kernels/swiglu.h"
#include "support/kernel_cases.h"
#include "support/reference_ops.h"
#include "support/tensor_box.h"

namespace lockstep::tests {
namespace {

class Extremes : public ::testing::TestWithParam<DType> {
 protected:
  DType type() const { return GetParam(); }
  DType wide() const { return accumulator_of(type()); }
  // A few roundings of the storage and some of the accumulator.
  double tolerance() const { return 2 * unit_roundoff(type()) + 64 * unit_roundoff(wide()); }

  struct Loss {
    std::vector<double> losses, dlogits;
  };
  Loss loss_of(const std::vector<double>& logits, std::int64_t rows, const std::vector<double>& targets) {
    const Shape shape{rows, static_cast<std::int64_t>(logits.size()) / rows};
    const Tensor losses = box_.make(wide(), {rows}), dlogits = box_.make(type(), shape);
    cross_entropy({.losses = losses,
                   .dlogits = dlogits,
                   .logits = box_.make(type(), shape, logits),
                   .targets = box_.make(DType::i32, {rows}, targets),
                   .scale = box_.make(wide(), {1}, constant(1))},
                  box_.stream());
    return {box_.read(losses), box_.read(dlogits)};
  }

  TensorBox box_;
};

TEST_P(Extremes, CrossEntropyOfLargeLogits) {
  const double big = round_to(type(), 10000);
  const std::int64_t width = 37;
  for (const double all : {big, -big, 0.0}) {  // equal logits are a uniform distribution, whatever they are
    const Loss got = loss_of(std::vector<double>(width, all), 1, {5});
    // A loss is a difference of logits, so it knows its last bit at their size.
    EXPECT_NEAR(got.losses[0], std::log(37.0), 4 * unit_roundoff(wide()) * (std::abs(all) + 64));
    for (std::int64_t v = 0; v < width; ++v)
      EXPECT_NEAR(got.dlogits[v], 1.0 / 37 - (v == 5), tolerance()) << "logits " << all << " at " << v;
  }
  std::vector<double> one(width, -big);
  one[7] = big;
  EXPECT_EQ(loss_of(one, 1, {7}).losses[0], 0);
  const Loss wrong = loss_of(one, 1, {3});
  EXPECT_NEAR(wrong.losses[0], 2 * big, 4 * unit_roundoff(wide()) * big);
  for (std::int64_t v = 0; v < width; ++v) EXPECT_EQ(wrong.dlogits[v], v == 7 ? 1 : v == 3 ? -1 : 0) << v;
}

TEST_P(Extremes, CrossEntropyOfInfinitelyImpossibleWords) {
  std::vector<double> logits = {1, -INFINITY, 1, -INFINITY};
  const Loss got = loss_of(logits, 1, {0});
  EXPECT_NEAR(got.losses[0], std::log(2.0), 1e-6);
  EXPECT_NEAR(got.dlogits[0], -0.5, 1e-6);
  EXPECT_EQ(got.dlogits[1], 0);
  EXPECT_NEAR(got.dlogits[2], 0.5, 1e-6);
}

TEST_P(Extremes, CrossEntropyWithAllTargetsIgnoredIsZero) {
  const Loss got = loss_of({1e4, 2, 3, 4, 5, 6}, 2, {kIgnoredTarget, kIgnoredTarget});
  for (const double v : got.losses) EXPECT_EQ(v, 0);
  for (const double v : got.dlogits) EXPECT_EQ(v, 0);
}

TEST_P(Extremes, AttentionWithScoresOfTenThousandPicksTheLargest) {
  const std::int64_t T = 70, D = 8;
  // Key s scores ±10000 · (s / 70): the last visible key wins by 140 and more, for either sign of the query.
  for (const double sign : {1.0, -1.0}) {
    std::vector<double> q(T * D), k(T * D), v(T * D);
    for (std::int64_t t = 0; t < T; ++t) {
      q[t * D] = sign * 128;
      k[t * D] = static_cast<double>(t);
      for (std::int64_t d = 0; d < D; ++d) v[t * D + d] = static_cast<double>(t % 32);
    }
    const Shape shape{1, T, 1, D};
    const Tensor o = box_.make(type(), shape), lse = box_.make(wide(), {1, 1, T});
    attention_forward({.o = o,
                       .lse = lse,
                       .q = box_.make(type(), shape, q),
                       .k = box_.make(type(), shape, k),
                       .v = box_.make(type(), shape, v),
                       .scale = 10000.0 / 128 / 70,
                       .causal = true},
                      box_.stream());
    for (std::int64_t t = 0; t < T; ++t) {
      const std::int64_t winner = sign > 0 ? t : 0;
      EXPECT_NEAR(box_.read(o, t * D + 3), winner % 32, 1e-30) << "query " << t;
      const double score = sign * 10000.0 / 70 * static_cast<double>(winner);
      EXPECT_NEAR(box_.read(lse, t), score, 1e-6 * 10000) << "query " << t;
    }
  }
}

TEST_P(Extremes, AttentionOfEqualScoresIsTheMeanOfTheValues) {
  const std::int64_t S = 130, D = 4;
  const Shape shape{1, S, 1, D};
  const double size = type() == DType::f16 ? 100 : 5000;
  const Tensor q = box_.make(type(), {1, 1, 1, D}, constant(size)), k = box_.make(type(), shape, constant(size));
  std::vector<double> v(S * D);
  for (std::int64_t i = 0; i < S * D; ++i) v[i] = static_cast<double>(i / D % 2);
  const Tensor o = box_.make(type(), {1, 1, 1, D}), lse = box_.make(wide(), {1, 1, 1});
  attention_forward({.o = o, .lse = lse, .q = q, .k = k, .v = box_.make(type(), shape, v), .scale = 1}, box_.stream());
  for (const double got : box_.read(o)) EXPECT_NEAR(got, 0.5, tolerance());
}

TEST_P(Extremes, RmsNormOfZerosIsZero) {
  const Shape shape{3, 33};
  const Tensor y = box_.make(type(), shape), rstd = box_.make(wide(), {3});
  rmsnorm_forward({.y = y,
                   .rstd = rstd,
                   .x = box_.make(type(), shape, constant(0)),
                   .weight = box_.make(type(), {33}),
                   .eps = 1e-6},
                  box_.stream());
  for (const double r : box_.read(rstd)) EXPECT_NEAR(r, 1000, 1e-3);
  const Tensor ones = box_.make(type(), {33}, constant(1));
  rmsnorm_forward({.y = y, .rstd = rstd, .x = box_.make(type(), shape, constant(0)), .weight = ones, .eps = 1e-6},
                  box_.stream());
  for (const double v : box_.read(y)) EXPECT_EQ(v, 0);
}

TEST_P(Extremes, NormsOfHugeAndTinyRows) {
  if (type() == DType::f16) GTEST_SKIP() << "fp16 has neither";
  const std::int64_t width = 67;
  const Shape shape{1, width};
  const Tensor ones = box_.make(type(), {width}, constant(1)), zeros = box_.make(type(), {width}, constant(0));
  const auto signs = [](double size) {
    return [size](std::uint64_t, std::int64_t i) { return i % 2 == 0 ? size : -size; };
  };
  // The largest whose squares still fit a float's sum, and the smallest that stand against a tiny eps.
  for (const double size : {1e18, 1e-18}) {
    const Tensor x = box_.make(type(), shape, Recipe(signs(size))), y = box_.make(type(), shape),
                 rstd = box_.make(wide(), {1});
    const double eps = size < 1 ? 0 : 1e-6;
    rmsnorm_forward({.y = y, .rstd = rstd, .x = x, .weight = ones, .eps = eps}, box_.stream());
    const double stored = box_.read(x, 0);
    EXPECT_NEAR(box_.read(rstd, 0) * stored, 1, 1e-5) << size;
    for (std::int64_t c = 0; c < width; ++c) EXPECT_NEAR(box_.read(y, c), c % 2 == 0 ? 1 : -1, tolerance()) << size;
    const Tensor mean = box_.make(wide(), {1});
    layernorm_forward({.y = y, .mean = mean, .rstd = rstd, .x = x, .weight = ones, .bias = zeros, .eps = eps},
                      box_.stream());
    // One more of the first sign than of the other: the mean is size / 67.
    const double deviation = std::sqrt(1 - 1.0 / (67 * 67));
    for (std::int64_t c = 0; c < width; ++c)
      EXPECT_NEAR(box_.read(y, c), ((c % 2 == 0 ? 1 : -1) - 1.0 / 67) / deviation, 2 * tolerance()) << size;
  }
}

// The gradient of a norm shrinks as its row grows, to any size whose squares still fit: no power of rstd may run out of
// range.
TEST_P(Extremes, GradientsOfNormsOfHugeRows) {
  if (type() == DType::f16) GTEST_SKIP() << "fp16 has no such rows";
  const std::int64_t width = 67;
  const Shape shape{2, width};
  const auto host = [&](const Tensor& t, const char* name) {
    HostTensor h(name, t.shape(), t.dtype());
    h.value = box_.read(t);
    return h;
  };
  const Tensor x = box_.make(type(), shape, normal(1e15)), weight = box_.make(type(), {width}, normal(), 2);
  const Tensor dy = box_.make(type(), shape, normal(), 3), dx = box_.make(type(), shape);
  HostTensor y = host(x, "y"), mean("mean", {2}, wide()), rstd("rstd", {2}, wide()), want = host(dx, "dx");
  const HostTensor hx = host(x, "x"), hw = host(weight, "weight"), hdy = host(dy, "dy");

  reference::rmsnorm_forward(y, rstd, hx, hw, 1e-6);
  round_all(rstd);
  rmsnorm_backward_input({.dx = dx, .dy = dy, .x = x, .weight = weight, .rstd = box_.make(wide(), {2}, rstd.value)},
                         box_.stream());
  reference::rmsnorm_backward_input(want, hdy, hx, hw, rstd, nullptr);
  EXPECT_EQ(difference(host(dx, "dx"), want, wide()), "") << "rmsnorm";

  reference::layernorm_forward(y, mean, rstd, hx, hw, hw, 1e-6);
  round_all(mean);
  round_all(rstd);
  layernorm_backward_input({.dx = dx,
                            .dy = dy,
                            .x = x,
                            .weight = weight,
                            .mean = box_.make(wide(), {2}, mean.value),
                            .rstd = box_.make(wide(), {2}, rstd.value)},
                           box_.stream());
  reference::layernorm_backward_input(want, hdy, hx, hw, mean, rstd, nullptr);
  EXPECT_EQ(difference(host(dx, "dx"), want, wide()), "") << "layernorm";
}

// Far from zero the deviation is still the deviation: the variance is not a difference of squares.
TEST_P(Extremes, LayerNormOfRowsFarFromZero) {
  const std::int64_t width = 100;
  const double base = type() == DType::f64 ? 1e8 : type() == DType::f32 ? 10000 : 64;
  std::vector<double> x(width);
  for (std::int64_t c = 0; c < width; ++c) x[c] = base + static_cast<double>(c % 2);
  const Tensor y = box_.make(type(), {1, width}), mean = box_.make(wide(), {1}), rstd = box_.make(wide(), {1});
  layernorm_forward({.y = y,
                     .mean = mean,
                     .rstd = rstd,
                     .x = box_.make(type(), {1, width}, x),
                     .weight = box_.make(type(), {width}, constant(1)),
                     .bias = box_.make(type(), {width}, constant(0)),
                     .eps = 0},
                    box_.stream());
  EXPECT_NEAR(box_.read(mean, 0), base + 0.5, 4 * unit_roundoff(wide()) * base);
  EXPECT_NEAR(box_.read(rstd, 0), 2, 0.01);
}

TEST_P(Extremes, ActivationsFarOutAreTheirAsymptotes) {
  const Shape shape{1, 40};
  const double big = 100;
  for (const double x : {big, -big, 30.0, -30.0, 0.0, -0.0}) {
    const Tensor in = box_.make(type(), shape, constant(x)), y = box_.make(type(), shape),
                 ones = box_.make(type(), shape, constant(1));
    gelu_forward({.y = y, .x = in}, box_.stream());
    EXPECT_NEAR(box_.read(y, 39), std::max(x, 0.0), 1e-6) << "gelu of " << x;
    gelu_backward({.dx = y, .dy = ones, .x = in}, box_.stream());
    EXPECT_NEAR(box_.read(y, 39), x > 0 ? 1 : x < 0 ? 0 : 0.5, 1e-5) << "slope of gelu at " << x;
    std::vector<double> gate_up(80, 2.0);
    std::fill_n(gate_up.begin(), 40, x);
    const Tensor both = box_.make(type(), {1, 80}, gate_up), d_both = box_.make(type(), {1, 80});
    swiglu_forward({.y = y, .gate_up = both}, box_.stream());
    EXPECT_NEAR(box_.read(y, 39), 2 * std::max(x, 0.0), 1e-6) << "swiglu of " << x;
    swiglu_backward({.d_gate_up = d_both, .dy = ones, .gate_up = both}, box_.stream());
    EXPECT_NEAR(box_.read(d_both, 39), x > 0 ? 2 : x < 0 ? 0 : 1, 1e-5) << "slope of swiglu's gate at " << x;
    EXPECT_NEAR(box_.read(d_both, 79), std::max(x, 0.0), 1e-6) << "slope of swiglu's other half at " << x;
  }
}

TEST_P(Extremes, ActivationsAtTheTypesLargestNumbersStayFinite) {
  const double huge = type() == DType::f16 ? 60000 : 1e30;
  const Shape shape{1, 40};
  for (const double x : {huge, -huge}) {
    const Tensor in = box_.make(type(), shape, constant(x)), y = box_.make(type(), shape),
                 ones = box_.make(type(), shape, constant(1));
    gelu_forward({.y = y, .x = in}, box_.stream());
    EXPECT_NEAR(box_.read(y, 0), std::max(box_.read(in, 0), 0.0), 0) << "gelu of " << x;
    gelu_backward({.dx = y, .dy = ones, .x = in}, box_.stream());
    EXPECT_NEAR(box_.read(y, 0), x > 0 ? 1 : 0, 1e-5) << "slope of gelu at " << x;
    std::vector<double> gate_up(80, 1.0);
    std::fill_n(gate_up.begin(), 40, x);
    const Tensor both = box_.make(type(), {1, 80}, gate_up), d_both = box_.make(type(), {1, 80});
    swiglu_forward({.y = y, .gate_up = both}, box_.stream());
    EXPECT_EQ(box_.read(y, 0), std::max(box_.read(in, 0), 0.0)) << "swiglu of " << x;
    swiglu_backward({.d_gate_up = d_both, .dy = ones, .gate_up = both}, box_.stream());
    EXPECT_NEAR(box_.read(d_both, 0), x > 0 ? 1 : 0, 1e-5) << "slope of swiglu at " << x;
  }
}

INSTANTIATE_TEST_SUITE_P(In, Extremes, ::testing::ValuesIn(kFloatTypes),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace lockstep::tests
