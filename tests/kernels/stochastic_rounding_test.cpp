// Rounding by chance: without bias, and by the element of the tensor, wherever in a buffer it is.
#include "kernels/stochastic_rounding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "kernels/optimizers.h"
#include "kernels/step_control.h"
#include "support/step_controls.h"
#include "support/tensor_box.h"

namespace lockstep::tests {
namespace {

// All chances that there are: the share that rounds away from zero is what was dropped, exactly.
TEST(StochasticRounding, RoundsAwayAsOftenAsTheDroppedBitsSay) {
  for (const float sign : {1.0F, -1.0F})
    for (const std::uint32_t dropped : {0u, 1u, 0x4000u, 0x8000u, 0xfffeu, 0xffffu}) {
      const float value = sign * std::bit_cast<float>(0x3f810000u | dropped);
      const float below = sign * std::bit_cast<float>(0x3f810000u), above = sign * std::bit_cast<float>(0x3f820000u);
      std::uint32_t away = 0;
      for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        const auto got = static_cast<float>(round_by_chance(value, bits));
        ASSERT_TRUE(got == below || got == above) << value;
        away += got == above;
      }
      EXPECT_EQ(away, dropped);
    }
}

// The mean over many elements, tensors and steps: within four standard errors of the value.
TEST(StochasticRounding, HasNoBiasOverElementsTensorsAndSteps) {
  const float value = 1.0F + 0.3F / 128;
  const double step_up = 1.0 / 128, share = (static_cast<double>(value) - 1) / step_up;
  constexpr std::int64_t n = 400000;
  const double error = std::sqrt(share * (1 - share) / n);
  const auto mean = [&](auto&& word) {
    double away = 0;
    for (std::int64_t i = 0; i < n; ++i)
      away += static_cast<float>(round_by_chance(value, word(i) & 0xffffu)) > 1.0F ? 1 : 0;
    return away / n;
  };
  for (const RoundingStream stream : {RoundingStream::moments, RoundingStream::master}) {
    EXPECT_NEAR(mean([&](std::int64_t i) { return word_of_one({9, i, 1}, 4, stream); }), share, 4 * error);
    EXPECT_NEAR(mean([&](std::int64_t i) { return word_of_one({9, i, 1}, 4, stream) >> 16; }), share, 4 * error);
    EXPECT_NEAR(mean([&](std::int64_t i) {
                  return word_of_one({9, 3, 1}, static_cast<std::uint64_t>(i), stream);
                }),
                share, 4 * error);
    EXPECT_NEAR(mean([&](std::int64_t i) {
                  return word_of_one({random_key(0, "rounding/" + std::to_string(i)), 3, 1}, 4, stream);
                }),
                share, 4 * error);
  }
}

// Words of another step, stream, tensor or element agree in a bit no more often than chance would.
TEST(StochasticRounding, DrawsAnewForEveryStepStreamTensorAndElement) {
  constexpr int n = 20000;
  const auto agree = [&](const RoundedElement& moved, std::uint64_t step, RoundingStream stream) {
    int same = 0;
    for (int i = 0; i < n; ++i) {
      const std::uint32_t one = word_of_one({9, i, 1}, 4, RoundingStream::moments);
      same += std::popcount(~(one ^ word_of_one({moved.key, moved.element + i, 1}, step, stream)));
    }
    return same / (32.0 * n);
  };
  const double most = 5 * std::sqrt(0.25 / (32.0 * n));
  EXPECT_EQ(agree({9, 0, 1}, 4, RoundingStream::moments), 1);
  EXPECT_NEAR(agree({9, 0, 1}, 5, RoundingStream::moments), 0.5, most);
  EXPECT_NEAR(agree({9, 0, 1}, 4, RoundingStream::master), 0.5, most);
  EXPECT_NEAR(agree({8, 0, 1}, 4, RoundingStream::moments), 0.5, most);
  EXPECT_NEAR(agree({9, 1, 1}, 4, RoundingStream::moments), 0.5, most);
}

// Tensors of a buffer, and where each element is: a vector of (tensor, element) by place, and the runs that say so.
struct RoundedBuffer {
  struct Element {
    std::uint64_t tensor = 0;  // 0: of none
    std::int64_t element = 0;
    auto operator<=>(const Element&) const = default;
  };
  std::vector<Element> at;
  std::vector<RoundingRun> runs;

  void skip(std::int64_t places) { at.resize(at.size() + static_cast<std::size_t>(places)); }
  // Columns [from, to) of rows [first, last) of a tensor that is `width` wide.
  void add(std::uint64_t tensor, std::int64_t width, std::int64_t first, std::int64_t last, std::int64_t from,
           std::int64_t to) {
    const std::int64_t begin = std::ssize(at), rows = last - first, row = to - from;
    runs.push_back({begin, begin + rows * row, row, 0, row, tensor, first * width + from, width});
    for (std::int64_t r = first; r < last; ++r)
      for (std::int64_t c = from; c < to; ++c) at.push_back({tensor, r * width + c});
  }
  // Two groups of columns of all rows of a tensor, which alternate, with a gap of two after them.
  void add_alternating(std::uint64_t tensor, std::int64_t width, std::int64_t rows, std::int64_t from,
                       std::int64_t other, std::int64_t row) {
    const std::int64_t begin = std::ssize(at), pitch = 2 * row + 2, end = begin + rows * pitch - 2;
    runs.push_back({begin, end, pitch, 0, row, tensor, from, width});
    runs.push_back({begin, end, pitch, row, 2 * row, tensor, other, width});
    for (std::int64_t r = 0; r < rows; ++r) {
      for (const std::int64_t first : {from, other})
        for (std::int64_t c = 0; c < row; ++c) at.push_back({tensor, r * width + first + c});
      skip(2);
    }
  }
};

// The same elements of three tensors, whole in one buffer and in parts, in other orders, in others.
std::vector<RoundedBuffer> rounded_buffers() {
  std::vector<RoundedBuffer> all(4);
  all[0].add(1, 10, 0, 12, 0, 10);
  all[0].add(2, 30, 0, 9, 0, 30);
  all[0].add(3, 7, 0, 1, 0, 7);
  // By rows, the tensors in another order, apart.
  all[1].skip(3);
  all[1].add(2, 30, 4, 9, 0, 30);
  all[1].add(3, 7, 0, 1, 2, 6);
  all[1].skip(5);
  all[1].add(1, 10, 5, 12, 0, 10);
  all[1].skip(1);
  all[1].add(2, 30, 0, 4, 0, 30);
  // By columns.
  all[2].add(3, 7, 0, 1, 0, 7);
  all[2].add(1, 10, 0, 12, 3, 8);
  all[2].add(2, 30, 0, 9, 13, 30);
  // In rows that alternate.
  all[3].skip(1);
  all[3].add(1, 10, 2, 6, 8, 10);
  all[3].add_alternating(2, 30, 9, 3, 17, 5);
  return all;
}

TEST(StochasticRounding, FindsTheElementOfEveryPlaceInAnyOrderOfTensors) {
  for (const RoundedBuffer& buffer : rounded_buffers()) {
    const auto count = static_cast<int>(buffer.runs.size());
    for (const int stride : {1, 4, 7}) {
      int at = 0;
      for (std::int64_t place = 0; place < std::ssize(buffer.at); place += stride) {
        const RoundedElement e = rounded_element(buffer.runs.data(), count, at, place);
        const RoundedBuffer::Element& want = buffer.at[static_cast<std::size_t>(place)];
        ASSERT_EQ(e.key, want.tensor) << place;
        if (want.tensor == 0) continue;
        ASSERT_EQ(e.element, want.element) << place;
        for (std::int64_t k = 0; k < e.left; ++k)
          ASSERT_EQ(buffer.at.at(static_cast<std::size_t>(place + k)),
                    (RoundedBuffer::Element{want.tensor, want.element + k}));
      }
    }
    // Four at a time give each its own word, at any place.
    for (std::int64_t place = 0; place + 4 <= std::ssize(buffer.at); ++place) {
      int at = 0;
      const RoundingWords words = rounding_words<true, true>(buffer.runs.data(), count, at, place, 6);
      for (std::size_t k = 0; k < 4; ++k) {
        const RoundedBuffer::Element& e = buffer.at[static_cast<std::size_t>(place) + k];
        if (e.tensor == 0) continue;
        const auto want = [&](std::uint64_t high) {
          return philox(e.tensor, static_cast<std::uint64_t>(e.element / 4), high)[e.element % 4];
        };
        ASSERT_EQ(words.moments[k], want(6));
        ASSERT_EQ(words.master[k], want(6 | std::uint64_t{1} << 62));
      }
    }
  }
}

// What an element's state becomes in three steps does not depend on the buffer, on the slice that is updated, nor on
// threads.
TEST(StochasticRounding, AnElementMovesAloneOfTheBufferItIsIn) {
  TensorBox box;
  using State = std::array<double, 3>;
  const auto number = [](const RoundedBuffer::Element& e, int what) {
    return e.tensor == 0 ? 0.0 : std::sin(static_cast<double>(e.tensor * 1000) + static_cast<double>(e.element) + what);
  };
  const auto moved = [&](const RoundedBuffer& buffer, std::vector<std::int64_t> cuts, int threads, bool momentum) {
    const std::int64_t n = std::ssize(buffer.at);
    const Tensor master = box.make(DType::bf16, {n}), m = box.make(DType::bf16, {n}), v = box.make(DType::bf16, {n});
    const Tensor gradient = box.make(DType::f32, {n});
    for (std::int64_t i = 0; i < n; ++i) {
      const RoundedBuffer::Element& e = buffer.at[static_cast<std::size_t>(i)];
      box.write(master, i, number(e, 0));
      box.write(gradient, i, number(e, 1));
      box.write(m, i, 0);
      box.write(v, i, 0);
    }
    cuts.push_back(n);
    for (int step = 1; step <= 3; ++step) {
      const Tensor control = box.make(DType::f64, {kStepControls}, step_controls({.rate = 0.1, .step = step}));
      std::int64_t begin = 0;
      for (const std::int64_t end : cuts) {
        const auto part = [&](const Tensor& t) { return t.slice(0, begin, end - begin); };
        if (momentum)
          sgd({.master = part(master),
               .weight = {},
               .momentum = part(m),
               .gradient = part(gradient),
               .control = control,
               .beta = 0.9,
               .decay = 0,
               .decayed = 0,
               .rounding = buffer.runs,
               .first = begin},
              box.stream(threads));
        else
          adamw({.master = part(master),
                 .weight = {},
                 .m = part(m),
                 .v = part(v),
                 .gradient = part(gradient),
                 .control = control,
                 .beta1 = 0.9,
                 .beta2 = 0.999,
                 .eps = 1e-8,
                 .decay = 0,
                 .decayed = 0,
                 .rounding = buffer.runs,
                 .first = begin},
                box.stream(threads));
        begin = end;
      }
    }
    std::map<RoundedBuffer::Element, State> states;
    for (std::int64_t i = 0; i < n; ++i) {
      const State state{box.read(master, i), box.read(m, i), box.read(v, i)};
      const RoundedBuffer::Element& e = buffer.at[static_cast<std::size_t>(i)];
      if (e.tensor != 0)
        states[e] = state;
      else
        EXPECT_EQ(state, State{}) << "a place of no tensor moved: " << i;
    }
    return states;
  };
  for (const bool momentum : {false, true}) {
    const auto whole = moved(rounded_buffers()[0], {}, 1, momentum);
    for (const RoundedBuffer& buffer : rounded_buffers())
      for (const int threads : {1, 3})
        for (const std::vector<std::int64_t>& cuts :
             {std::vector<std::int64_t>{}, {1, 6, 40}, {16, 32, 64}, {33, 35, 36, 99}}) {
          const auto states = moved(buffer, cuts, threads, momentum);
          ASSERT_GT(states.size(), 90u);
          for (const auto& [element, state] : states)
            ASSERT_EQ(state, whole.at(element)) << element.tensor << "[" << element.element << "]";
        }
  }
}

// Every bit of AdamW with all state in bf16, from the formulas in plain floats: from an element in the middle of four
// that are drawn together, from the first of them, and where their number has more than 32 bits from some element on.
class RoundedAdamW : public ::testing::TestWithParam<std::int64_t> {};
TEST_P(RoundedAdamW, OfBf16StateIsThePlainModelsBits) {
  TensorBox box;
  constexpr std::int64_t n = 777, decayed = 400;
  const std::int64_t offset = GetParam();
  constexpr float b1 = 0.9F, b2 = 0.999F, eps = 1e-8F, scale = 0.5F;
  const RoundingRun run = RoundingRun::flat(0, n, 1234, offset);
  for (const bool narrow_moments : {true, false}) {
    const DType moments = narrow_moments ? DType::bf16 : DType::f32;
    const Tensor master = box.make(DType::bf16, {n}, normal()), m = box.make(moments, {n}, constant(0)),
                 v = box.make(moments, {n}, constant(0));
    std::vector<float> p(n), first(n), second(n);
    for (std::int64_t i = 0; i < n; ++i) p[static_cast<std::size_t>(i)] = static_cast<float>(box.read(master, i));
    for (int step = 1; step <= 40; ++step) {
      const double rate = 0.01 / step;
      const Tensor gradient = box.make(DType::bf16, {n}, magnitudes(-12, 2), static_cast<std::uint64_t>(step));
      adamw({.master = master,
             .weight = {},
             .m = m,
             .v = v,
             .gradient = gradient,
             .control =
                 box.make(DType::f64, {kStepControls}, step_controls({.rate = rate, .step = step, .scale = scale})),
             .beta1 = 0.9,
             .beta2 = 0.999,
             .eps = 1e-8,
             .decay = 0.1,
             .decayed = decayed,
             .rounding = {&run, 1}},
            box.stream());
      const auto size = static_cast<float>(rate / (1 - std::pow(0.9, step)));
      const auto correction = static_cast<float>(std::sqrt(1 - std::pow(0.999, step)));
      const auto kept = [&](float value, std::uint32_t bits) {  // one of the two neighbours
        const double unit = std::exp2(std::max(std::ilogb(value) - 7, -133));
        const double below = value == 0 ? 0 : std::trunc(value / unit) * unit;
        const bool away = value != 0 && std::abs(value - below) / unit + bits / 65536.0 >= 1;
        return static_cast<float>(below + (away ? std::copysign(unit, value) : 0));
      };
      for (std::int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const auto element = static_cast<std::uint64_t>(offset + i), now = static_cast<std::uint64_t>(step);
        const std::uint32_t word = philox(1234, element / 4, now)[element % 4],
                            other = philox(1234, element / 4, now | std::uint64_t{1} << 62)[element % 4];
        const float g = static_cast<float>(box.read(gradient, i)) * scale;
        const float mean = std::fma(first[at], b1, g * static_cast<float>(1 - 0.9));
        const float square = std::fma(second[at], b2, g * g * static_cast<float>(1 - 0.999));
        const auto keep = static_cast<float>(1 - rate * (i < decayed ? 0.1 : 0));
        p[at] = kept(p[at] * keep - mean / (std::sqrt(square) / correction + eps) * size, other & 0xffff);
        first[at] = narrow_moments ? kept(mean, word & 0xffff) : mean;
        second[at] = narrow_moments ? kept(square, word >> 16) : square;
        ASSERT_EQ(box.read(master, i), p[at]) << "step " << step << ", " << i;
        ASSERT_EQ(box.read(m, i), first[at]) << "step " << step << ", " << i;
        ASSERT_EQ(box.read(v, i), second[at]) << "step " << step << ", " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(FromElement, RoundedAdamW, ::testing::Values(6, 0, 4096, (std::int64_t{1} << 34) - 320));

// What is not a number stays so, and changes nothing beside it: within vectors and in a tail.
TEST(StochasticRounding, KeepsNaNsWhereTheyAre) {
  TensorBox box;
  constexpr std::int64_t n = 300;
  const RoundingRun run = RoundingRun::flat(0, n, 5);
  const auto is_bad = [](std::int64_t i) { return i == 3 || i == 100 || i == 101 || i == 297; };
  const auto moved = [&](bool bad, DType moments, DType masters, bool momentum) {
    const Tensor master = box.make(masters, {n}, normal(), 1), m = box.make(moments, {n}, normal(), 2),
                 v = box.make(moments, {n}, constant(0.5)), gradient = box.make(DType::f32, {n}, normal(), 4);
    for (std::int64_t i = 0; i < n; ++i)
      if (bad && is_bad(i)) box.write(gradient, i, std::numeric_limits<double>::quiet_NaN());
    const Tensor control = box.make(DType::f64, {kStepControls}, step_controls({.rate = 0.1, .step = 3}));
    if (momentum)
      sgd({.master = master,
           .weight = {},
           .momentum = m,
           .gradient = gradient,
           .control = control,
           .beta = 0.9,
           .decay = 0,
           .decayed = 0,
           .rounding = {&run, 1}},
          box.stream());
    else
      adamw({.master = master,
             .weight = {},
             .m = m,
             .v = v,
             .gradient = gradient,
             .control = control,
             .beta1 = 0.9,
             .beta2 = 0.999,
             .eps = 1e-8,
             .decay = 0,
             .decayed = 0,
             .rounding = {&run, 1}},
            box.stream());
    std::vector<std::vector<double>> all{box.read(master), box.read(m)};
    if (!momentum) all.push_back(box.read(v));
    return all;
  };
  for (const bool momentum : {false, true})
    for (const auto& [moments, masters] : {std::pair(DType::bf16, DType::bf16), std::pair(DType::bf16, DType::f32),
                                           std::pair(DType::f32, DType::bf16)}) {
      const auto good = moved(false, moments, masters, momentum), some = moved(true, moments, masters, momentum);
      for (std::size_t t = 0; t < good.size(); ++t)
        for (std::int64_t i = 0; i < n; ++i) {
          const double want = good[t][static_cast<std::size_t>(i)], got = some[t][static_cast<std::size_t>(i)];
          if (is_bad(i))
            EXPECT_TRUE(std::isnan(got)) << t << ", " << i;
          else
            EXPECT_EQ(got, want) << t << ", " << i;
        }
    }
}

// Where every step is too small for bf16: rounded to nearest, the weights would stay where they are.
TEST(StochasticRounding, MastersOf16BitsMoveByStepsTooSmallForThem) {
  TensorBox box;
  constexpr std::int64_t n = 4096;
  const int steps = 300;
  const double rate = 1e-4;  // of a weight of 1, whose neighbours are 2^-8 below and 2^-7 above
  const RoundingRun run = RoundingRun::flat(0, n, 3);
  const Tensor master = box.make(DType::bf16, {n}, constant(1)), g = box.make(DType::bf16, {n}, constant(1));
  for (int step = 1; step <= steps; ++step)
    sgd({.master = master,
         .weight = {},
         .momentum = {},
         .gradient = g,
         .control = box.make(DType::f64, {kStepControls}, step_controls({.rate = rate, .step = step})),
         .beta = 0,
         .decay = 0,
         .decayed = 0,
         .rounding = {&run, 1}},
        box.stream());
  double mean = 0;
  for (const double value : box.read(master)) mean += value / n;
  // Each step is 1e-4 on average, with a deviation of at most half of 2^-8; five standard errors of the mean.
  EXPECT_NEAR(mean, 1 - steps * rate, 5 * std::sqrt(steps * rate * 0x1p-8 / n));
}

}  // namespace
}  // namespace lockstep::tests
