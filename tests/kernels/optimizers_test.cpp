// The optimizers over many steps follow PyTorch's formulas, keep their weight copies exact, and stop at what is not
// finite.
#include "kernels/optimizers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/philox.h"
#include "kernels/norm_sum.h"
#include "kernels/step_control.h"
#include "support/kernel_cases.h"
#include "support/reference_ops.h"
#include "support/step_controls.h"
#include "support/tensor_box.h"

namespace lockstep::tests {
namespace {

struct Types {
  DType master, weight, gradient;
};

class Optimizers : public ::testing::TestWithParam<Types> {
 protected:
  static constexpr std::int64_t n = 301, decayed = 150;
  static constexpr int kSteps = 60;

  HostTensor host(const Tensor& t) {
    HostTensor h("", {t.elements()}, t.dtype());
    h.value = box_.read(t);
    return h;
  }

  // One step's scalars: the learning rate falls, the gradient scale wanders.
  Tensor control(int step) {
    return box_.make(DType::f64, {kStepControls},
                     step_controls({.rate = 0.02 / step, .step = step, .scale = step % 3 ? 0.5 : 1.0, .beta2 = 0.99}));
  }
  Tensor gradient(int step) {
    return box_.make(GetParam().gradient, {n}, magnitudes(-12, 2), static_cast<std::uint64_t>(step));
  }

  void expect_close(const Tensor& got, const HostTensor& want, const char* what) {
    // Sixty steps of a few roundings each, at the size of what is updated.
    const double tolerance = 10 * kSteps * unit_roundoff(GetParam().master);
    for (std::int64_t i = 0; i < n; ++i)
      EXPECT_NEAR(box_.read(got, i), want[i], tolerance * std::max(1.0, std::abs(want[i]))) << what << " " << i;
  }
  void expect_copied(const Tensor& weight, const Tensor& master) {
    for (std::int64_t i = 0; i < n; ++i)
      EXPECT_EQ(box_.read(weight, i), round_to(weight.dtype(), box_.read(master, i))) << i;
  }

  TensorBox box_;
};

TEST_P(Optimizers, AdamWFollowsItsFormulasForManySteps) {
  const auto [type, copy, _] = GetParam();
  const Tensor master = box_.make(type, {n}, normal()), weight = box_.make(copy, {n});
  const Tensor m = box_.make(type, {n}, constant(0)), v = box_.make(type, {n}, constant(0));
  HostTensor p = host(master), first = host(m), second = host(v);
  const reference::OptimizerOptions options{.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .decay = 0.1, .decayed = decayed};
  for (int step = 1; step <= kSteps; ++step) {
    const Tensor g = gradient(step), c = control(step);
    adamw({.master = master,
           .weight = weight,
           .m = m,
           .v = v,
           .gradient = g,
           .control = c,
           .beta1 = options.beta1,
           .beta2 = options.beta2,
           .eps = options.eps,
           .decay = options.decay,
           .decayed = decayed},
          box_.stream());
    reference::adamw(p, nullptr, first, second, host(g), host(c), options);
    expect_copied(weight, master);
  }
  expect_close(master, p, "master");
  expect_close(m, first, "m");
  expect_close(v, second, "v");
}

TEST_P(Optimizers, SgdFollowsItsFormulasForManySteps) {
  const auto [type, copy, _] = GetParam();
  for (const bool with_momentum : {false, true}) {
    const Tensor master = box_.make(type, {n}, normal()), weight = box_.make(copy, {n});
    const Tensor momentum = box_.make(type, {n}, constant(0));
    HostTensor p = host(master), rolling = host(momentum);
    const reference::OptimizerOptions options{.beta1 = 0.9, .decay = 0.1, .decayed = decayed};
    for (int step = 1; step <= kSteps; ++step) {
      const Tensor g = gradient(step), c = control(step);
      sgd({.master = master,
           .weight = weight,
           .momentum = with_momentum ? momentum : Tensor(),
           .gradient = g,
           .control = c,
           .beta = options.beta1,
           .decay = options.decay,
           .decayed = decayed},
          box_.stream());
      reference::sgd(p, nullptr, with_momentum ? &rolling : nullptr, host(g), host(c), options);
      expect_copied(weight, master);
    }
    expect_close(master, p, with_momentum ? "master with momentum" : "master");
    if (with_momentum) expect_close(momentum, rolling, "momentum");
  }
}

// The norm of a bad gradient says so, and then nothing moves: not a bit of master, state or weights.
TEST_P(Optimizers, LeaveEveryBitWhenTheNormIsNotFinite) {
  const auto [type, copy, gradients] = GetParam();
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const Tensor master = box_.make(type, {n}, normal()), weight = box_.make(copy, {n}, normal());
    const Tensor m = box_.make(type, {n}, normal()), v = box_.make(type, {n}, constant(0.5)), g = gradient(1),
                 c = control(1);
    box_.write(g, 200, bad);
    const Tensor bins = box_.make(DType::i64, {kNormBins});
    norm_sum({.bins = bins, .x = g}, box_.stream());
    step_control({.control = c, .bins = bins, .clip = 1}, box_.stream());
    EXPECT_EQ(box_.read(c, kFinite), 0);
    EXPECT_FALSE(std::isfinite(box_.read(c, kNorm)));
    EXPECT_EQ(box_.read(c, kLearningRate), 0.02);
    EXPECT_EQ(box_.read(c, kStep), 1);
    std::vector<std::vector<std::byte>> before;
    for (const Tensor& t : {master, weight, m, v}) before.push_back(box_.bytes(t));
    adamw({.master = master,
           .weight = weight,
           .m = m,
           .v = v,
           .gradient = g,
           .control = c,
           .beta1 = 0.9,
           .beta2 = 0.99,
           .eps = 1e-8,
           .decay = 0.1,
           .decayed = decayed},
          box_.stream());
    sgd({.master = master,
         .weight = weight,
         .momentum = m,
         .gradient = g,
         .control = c,
         .beta = 0.9,
         .decay = 0.1,
         .decayed = decayed},
        box_.stream());
    std::size_t at = 0;
    for (const Tensor& t : {master, weight, m, v}) EXPECT_TRUE(box_.bytes(t) == before[at++]) << "operand " << at;
  }
}

INSTANTIATE_TEST_SUITE_P(
    In, Optimizers,
    ::testing::Values(Types{DType::f64, DType::f64, DType::f64}, Types{DType::f32, DType::f32, DType::bf16},
                      Types{DType::f32, DType::f32, DType::f32}, Types{DType::f32, DType::bf16, DType::f32},
                      Types{DType::f32, DType::bf16, DType::bf16}, Types{DType::f32, DType::f16, DType::f16},
                      Types{DType::f32, DType::f16, DType::bf16}),
    [](const auto& info) {
      return fmt::format("{}_copied_to_{}_by_{}", name_of(info.param.master), name_of(info.param.weight),
                         name_of(info.param.gradient));
    });

// An update on the host reads what a GPU has computed: no correction is computed twice.
TEST(AdamW, TakesItsBiasCorrectionsFromTheControl) {
  TensorBox box;
  std::vector<double> scalars = step_controls({.rate = 0.5, .step = 5});
  scalars[kFirstCorrection] = 0.25;
  scalars[kSecondCorrection] = 0.5;
  const Tensor p = box.make(DType::f64, {1}, constant(3)), m = box.make(DType::f64, {1}, constant(1)),
               v = box.make(DType::f64, {1}, constant(4)), g = box.make(DType::f64, {1}, constant(0));
  adamw({.master = p,
         .weight = {},
         .m = m,
         .v = v,
         .gradient = g,
         .control = box.make(DType::f64, {kStepControls}, scalars),
         .beta1 = 1,
         .beta2 = 1,
         .eps = 0,
         .decay = 0,
         .decayed = 0},
        box.stream());
  EXPECT_EQ(box.read(p, 0), 3 - 0.5 / 0.25 * 1 / (2 / 0.5));
}

TEST(StepControl, ComputesTheBiasCorrectionsOfTheUpdateThatFollows) {
  TensorBox box;
  std::vector<std::int64_t> bins(kNormBins);
  norm_add(bins, 4.0);
  const Tensor b = box.make(DType::i64, {kNormBins});
  std::copy(bins.begin(), bins.end(), b.data<std::int64_t>());
  const Tensor c = box.make(DType::f64, {kStepControls}, step_controls({.rate = 0.1, .step = 0}));
  for (int step = 1; step <= 3; ++step) {
    step_control({.control = c, .bins = b, .beta1 = 0.9, .beta2 = 0.95}, box.stream());
    EXPECT_EQ(box.read(c, kFirstCorrection), 1 - std::pow(0.9, step));
    EXPECT_EQ(box.read(c, kSecondCorrection), std::sqrt(1 - std::pow(0.95, step)));
  }
}

// Shards are cut anywhere a unit's shards are: a slice updates as the whole does.
TEST(AdamW, OnASliceGivesTheBitsOfTheWhole) {
  TensorBox box;
  constexpr std::int64_t n = 1000;
  const Tensor c =
      box.make(DType::f64, {kStepControls}, step_controls({.rate = 0.01, .step = 5, .scale = 0.7, .beta2 = 0.95}));
  const Tensor g = box.make(DType::f32, {n}, magnitudes(-30, 3));
  const auto update = [&](std::initializer_list<std::int64_t> cuts) {
    const Tensor master = box.make(DType::f32, {n}, normal()), m = box.make(DType::f32, {n}, normal(), 2);
    const Tensor v = box.make(DType::f32, {n}, constant(0.3)), weight = box.make(DType::bf16, {n});
    std::int64_t begin = 0;
    for (const std::int64_t end : cuts) {
      const auto part = [&](const Tensor& t) { return t.slice(0, begin, end - begin); };
      adamw({.master = part(master),
             .weight = part(weight),
             .m = part(m),
             .v = part(v),
             .gradient = part(g),
             .control = c,
             .beta1 = 0.9,
             .beta2 = 0.95,
             .eps = 1e-8,
             .decay = 0.1,
             .decayed = std::clamp<std::int64_t>(600 - begin, 0, end - begin)},
            box.stream());
      begin = end;
    }
    std::vector<std::byte> all;
    for (const Tensor& t : {master, m, v, weight}) {
      const std::vector<std::byte> bytes = box.bytes(t);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  };
  const std::vector<std::byte> whole = update({n});
  EXPECT_TRUE(update({256, n}) == whole);
  EXPECT_TRUE(update({1, 8, 13, 300, 601, 999, n}) == whole);
}

// What bf16 moments must be, from the definition: the fp32 moment cut to one of its neighbours by sixteen random bits.
TEST(AdamW, RoundsMomentsByChanceAsItsContractSays) {
  TensorBox box;
  constexpr std::int64_t n = 1003, first = 2048;
  constexpr std::uint64_t key = 0x123456789abcdef;
  const RoundingRun run = RoundingRun::flat(first, n, key, 7);  // from the middle of its tensor on
  const Tensor c = box.make(DType::f64, {kStepControls}, step_controls({.rate = 0.01, .step = 5, .scale = 0.7}));
  const Tensor g = box.make(DType::f32, {n}, magnitudes(-30, 3));
  struct State {
    Tensor master, m, v;
  };
  const auto update = [&](DType moments, std::initializer_list<std::int64_t> cuts) {
    const State s{box.make(DType::f32, {n}, normal()), box.make(moments, {n}, normal(), 2),
                  box.make(moments, {n}, constant(0.3))};
    // Both kinds begin with the same numbers.
    for (const Tensor& t : {s.m, s.v})
      for (std::int64_t i = 0; i < n; ++i) box.write(t, i, round_to(DType::bf16, box.read(t, i)));
    std::int64_t begin = 0;
    for (const std::int64_t end : cuts) {
      const auto part = [&](const Tensor& t) { return t.slice(0, begin, end - begin); };
      adamw({.master = part(s.master),
             .weight = {},
             .m = part(s.m),
             .v = part(s.v),
             .gradient = part(g),
             .control = c,
             .beta1 = 0.9,
             .beta2 = 0.999,
             .eps = 1e-8,
             .decay = 0.1,
             .decayed = std::clamp<std::int64_t>(600 - begin, 0, end - begin),
             .rounding = {&run, 1},
             .first = first + begin},
            box.stream());
      begin = end;
    }
    return s;
  };
  const State full = update(DType::f32, {n}), narrow = update(DType::bf16, {n}),
              cut = update(DType::bf16, {4, 261, 518, n});
  EXPECT_TRUE(box.bytes(narrow.master) == box.bytes(full.master)) << "the update uses unrounded moments";
  int up = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto index = static_cast<std::uint64_t>(7 + i);
    const std::uint32_t word = philox(key, index / 4, 5)[index % 4];
    for (const bool second : {false, true}) {
      const float exact = (second ? full.v : full.m).data<float>()[i];
      const float got = static_cast<float>((second ? narrow.v : narrow.m).data<bf16>()[i]);
      // The neighbours and the place between them, in double.
      const double step = std::exp2(std::max(std::ilogb(exact) - 7, -133));
      const double below = std::trunc(exact / step) * step, share = std::abs(exact - below) / step;
      const double chance = static_cast<double>(second ? word >> 16 : word & 0xffff) / 65536;
      const bool away = exact != 0 && share + chance >= 1;
      EXPECT_EQ(got, below + (away ? std::copysign(step, exact) : 0)) << i;
      up += away && !second;  // the dropped bits of v are not spread evenly here
    }
  }
  EXPECT_NEAR(up / static_cast<double>(n), 0.5, 0.06);
  for (const auto& [one, other] : {std::pair{cut.m, narrow.m}, {cut.v, narrow.v}, {cut.master, narrow.master}})
    EXPECT_TRUE(box.bytes(one) == box.bytes(other)) << "a shard rounds as the whole";
}

// Where every step of v is too small for bf16: rounded to nearest it would stand still.
TEST(AdamW, MomentsOf16BitsMoveByStepsTooSmallForThem) {
  TensorBox box;
  constexpr std::int64_t n = 4096;
  constexpr double beta2 = 0.999;
  const Tensor master = box.make(DType::f32, {n}, constant(0)), m = box.make(DType::bf16, {n}, constant(0));
  const Tensor v = box.make(DType::bf16, {n}, constant(1)), g = box.make(DType::f32, {n}, constant(std::sqrt(0.5)));
  const int steps = 700;
  const RoundingRun run = RoundingRun::flat(0, n, 3);
  for (int step = 1; step <= steps; ++step) {
    const Tensor c = box.make(DType::f64, {kStepControls}, step_controls({.rate = 1e-3, .step = step, .beta2 = beta2}));
    adamw({.master = master,
           .weight = {},
           .m = m,
           .v = v,
           .gradient = g,
           .control = c,
           .beta1 = 0.9,
           .beta2 = beta2,
           .eps = 1e-8,
           .decay = 0,
           .decayed = 0,
           .rounding = {&run, 1}},
          box.stream());
  }
  double mean = 0;
  for (const double value : box.read(v)) mean += value / n;
  EXPECT_NEAR(mean, 0.5 + 0.5 * std::pow(beta2, steps), 0.002);
}

TEST(StepControl, CountsUpdatesAndCanHaltAfterABadValue) {
  TensorBox box;
  std::vector<std::int64_t> good(kNormBins), bad(kNormBins);
  norm_add(good, 4.0);
  bad[kNormDigits] = 1;
  const Tensor b = box.make(DType::i64, {kNormBins});
  for (const bool halt : {false, true}) {
    const Tensor c = box.make(DType::f64, {kStepControls}, step_controls({.rate = 0.1, .step = 0}));
    std::vector<std::pair<double, double>> seen;  // finite, step
    for (const auto* bins : {&good, &bad, &good}) {
      std::copy(bins->begin(), bins->end(), b.data<std::int64_t>());
      step_control({.control = c, .bins = b, .halt = halt}, box.stream());
      seen.emplace_back(box.read(c, kFinite), box.read(c, kStep));
    }
    const double last = halt ? 0 : 1;
    EXPECT_EQ(seen, (std::vector<std::pair<double, double>>{{1, 1}, {0, 1}, {last, 1 + last}})) << halt;
  }
}

struct ScaledControl {
  double finite, exponent, steps;
  bool operator==(const ScaledControl&) const = default;
};

// What steps with these norms leave of a loss scale: n good, o not finite.
std::vector<ScaledControl> scaled_by(const std::string& norms, double exponent, bool halt, std::int64_t growth) {
  TensorBox box;
  const Tensor b = box.make(DType::i64, {kNormBins});
  const Tensor c = box.make(DType::f64, {kStepControls}, {0.1, 0, 0, 0, 0, 0, exponent, 0, 0, 0});
  std::vector<ScaledControl> seen;
  for (const char norm : norms) {
    std::vector<std::int64_t> bins(kNormBins);
    if (norm == 'o')
      bins[kNormDigits] = 1;
    else
      norm_add(bins, 4.0);
    std::copy(bins.begin(), bins.end(), b.data<std::int64_t>());
    step_control({.control = c, .bins = b, .halt = halt, .growth = growth, .most_exponent = 7}, box.stream());
    seen.push_back({box.read(c, kFinite), box.read(c, kLossExponent), box.read(c, kScaledSteps)});
  }
  return seen;
}

TEST(StepControl, HalvesTheLossScaleAfterAnOverflowAndDoublesItAfterGoodSteps) {
  using Seen = std::vector<ScaledControl>;
  for (const bool halt : {false, true}) {
    EXPECT_EQ(scaled_by("nnnonnn", 5, halt, 3),
              (Seen{{1, 5, 1}, {1, 5, 2}, {1, 6, 0}, {0, 5, 0}, {1, 5, 1}, {1, 5, 2}, {1, 6, 0}}));
    EXPECT_EQ(scaled_by("nnnn", 6, halt, 1), (Seen{{1, 7, 0}, {1, 7, 0}, {1, 7, 0}, {1, 7, 0}})) << "no further";
  }
  // At the smallest scale nothing is left to try: it is a bad value.
  EXPECT_EQ(scaled_by("oon", 1, false, 3), (Seen{{0, 0, 0}, {0, 0, 0}, {1, 0, 1}}));
  EXPECT_EQ(scaled_by("oon", 1, true, 3), (Seen{{0, 0, 0}, {0, 0, 0}, {0, 0, 0}})) << "which halts";
  // One that is fixed stays, and an overflow is a bad value at once.
  EXPECT_EQ(scaled_by("nonn", 5, false, 0), (Seen{{1, 5, 0}, {0, 5, 0}, {1, 5, 0}, {1, 5, 0}}));
  EXPECT_EQ(scaled_by("non", 5, true, 0), (Seen{{1, 5, 0}, {0, 5, 0}, {0, 5, 0}}));
}

TEST(StepControl, ClipsTheNormAndLeavesSmallerOnesAlone) {
  TensorBox box;
  const auto scale = [&](double square, double clip) {
    std::vector<std::int64_t> bins(kNormBins);
    norm_add(bins, square);
    const Tensor b = box.make(DType::i64, {kNormBins}),
                 c = box.make(DType::f64, {kStepControls}, step_controls({.rate = 0.1, .step = 1}));
    std::copy(bins.begin(), bins.end(), b.data<std::int64_t>());
    step_control({.control = c, .bins = b, .clip = clip}, box.stream());
    EXPECT_EQ(box.read(c, kNorm), std::sqrt(square));
    EXPECT_EQ(box.read(c, kFinite), 1);
    return box.read(c, kGradientScale);
  };
  EXPECT_EQ(scale(25, 0), 1);  // no clipping
  EXPECT_DOUBLE_EQ(scale(25, 1), 1 / (5 + 1e-6));
  EXPECT_EQ(scale(25, 10), 1);
  EXPECT_EQ(scale(0, 1), 1);
  EXPECT_DOUBLE_EQ(scale(1e200, 1), 1 / (1e100 + 1e-6));
}

}  // namespace
}  // namespace lockstep::tests
