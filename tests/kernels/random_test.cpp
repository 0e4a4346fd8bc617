// Random numbers belong to logical indices: any slice has what the whole has, and the whole is distributed as it should
// be.
#include "kernels/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "support/kernel_cases.h"
#include "support/reference_random.h"
#include "support/tensor_box.h"

namespace lockstep::tests {
namespace {

class Random : public ::testing::Test {
 protected:
  Tensor normals(DType dtype, std::int64_t n, std::uint64_t key, std::int64_t first = 0, double std = 1) {
    const Tensor x = box_.make(dtype, {n});
    init_normal({.x = x, .key = key, .first = first, .std = std}, box_.stream(2));
    return x;
  }
  TensorBox box_;
};

TEST_F(Random, ShardsOfAParameterAreSlicesOfTheWhole) {
  for (const DType type : kFloatTypes) {
    const std::vector<std::byte> whole = box_.bytes(normals(type, 2000, 42));
    for (const auto& [first, count] :
         {std::pair<std::int64_t, std::int64_t>{0, 256}, {256, 512}, {1, 13}, {7, 1}, {1999, 1}, {510, 301}}) {
      const std::vector<std::byte> shard = box_.bytes(normals(type, count, 42, first));
      EXPECT_TRUE(std::equal(shard.begin(), shard.end(), whole.begin() + first * size_of(type)))
          << name_of(type) << " from " << first;
    }
  }
}

TEST_F(Random, FarElementsAreSlicesToo) {
  const std::int64_t far = (std::int64_t{1} << 36) + 5;
  const std::vector<double> a = box_.read(normals(DType::f64, 100, 9, far)),
                            b = box_.read(normals(DType::f64, 50, 9, far + 50));
  EXPECT_TRUE(std::equal(b.begin(), b.end(), a.begin() + 50));
}

// As tensor parallelism cuts matrices: some columns of some rows.
TEST_F(Random, ColumnsOfAMatrixAreThoseOfTheWhole) {
  constexpr std::int64_t kRows = 23, kColumns = 37;
  for (const DType type : kFloatTypes) {
    const std::vector<double> whole = box_.read(normals(type, kRows * kColumns, 42));
    for (const auto& [row, column, count, width] : {std::array<std::int64_t, 4>{0, 0, kRows, kColumns},
                                                    {0, 0, kRows, 12},
                                                    {0, 13, kRows, 24},
                                                    {5, 7, 3, 5},
                                                    {22, 36, 1, 1},
                                                    {4, 9, 10, 1}})
      for (const std::int64_t cut : {0, 1}) {  // the last row may be short
        const Tensor x = box_.make(type, {count * width - (width > 1 ? cut : 0)});
        init_normal({.x = x, .key = 42, .first = row * kColumns + column, .row = width, .pitch = kColumns},
                    box_.stream(2));
        const std::vector<double> part = box_.read(x);
        for (std::int64_t i = 0; i < x.elements(); ++i)
          ASSERT_EQ(part[i], whole[(row + i / width) * kColumns + column + i % width])
              << name_of(type) << " " << row << ", " << column << ": element " << i;
      }
  }
}

TEST_F(Random, TheTypeRoundsTheSameNumbers) {
  const std::vector<double> exact = box_.read(normals(DType::f64, 1000, 3)),
                            single = box_.read(normals(DType::f32, 1000, 3));
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    const std::vector<double> got = box_.read(normals(type, 1000, 3));
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], exact[i], 1.01 * unit_roundoff(type) * std::abs(exact[i]) + 1e-6);
  }
}

TEST_F(Random, NumbersAreThoseOfTheDefinitionRoundedOnce) {
  for (const DType type : kFloatTypes)
    for (const std::int64_t first : {std::int64_t{0}, std::int64_t{5}, std::int64_t{1} << 41}) {
      const std::vector<double> got = box_.read(normals(type, 500, 12, first, 0.3));
      for (std::int64_t i = 0; i < std::ssize(got); ++i)
        ASSERT_EQ(got[i], round_to(type, reference::normal_of(12, first + i) * 0.3)) << name_of(type) << " " << i;
    }
}

TEST_F(Random, ANewKeyGivesNewNumbers) {
  const std::vector<double> a = box_.read(normals(DType::f64, 1000, 1)), b = box_.read(normals(DType::f64, 1000, 2));
  double product = 0;
  for (std::size_t i = 0; i < a.size(); ++i) product += a[i] * b[i];
  EXPECT_LT(std::abs(product) / 1000, 4 / std::sqrt(1000.0));
  EXPECT_EQ(std::set<double>(a.begin(), a.end()).size(), a.size());
}

// Standard errors at n = 10^6: mean 1e-3, variance 1.4e-3, skewness 2.4e-3, kurtosis 4.9e-3; five of them are allowed.
TEST_F(Random, NumbersAreNormal) {
  constexpr std::int64_t n = 1000000;
  const std::vector<double> x = box_.read(normals(DType::f64, n, 77, 0, 2));
  double moments[5] = {}, neighbours = 0, tail = 0, largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double z = x[i] / 2;
    for (int k = 1; k <= 4; ++k) moments[k] += std::pow(z, k) / n;
    if (i > 0) neighbours += z * x[i - 1] / 2 / n;
    tail += std::abs(z) > 3;
    largest = std::max(largest, std::abs(z));
  }
  EXPECT_NEAR(moments[1], 0, 5e-3);
  EXPECT_NEAR(moments[2], 1, 7e-3);
  EXPECT_NEAR(moments[3], 0, 2e-2);
  EXPECT_NEAR(moments[4], 3, 5e-2);
  EXPECT_NEAR(neighbours, 0, 5e-3);
  EXPECT_NEAR(tail / n, 0.0026998, 3e-4);
  EXPECT_GT(largest, 4.2);
  EXPECT_LT(largest, 6.5);
}

class Dropping : public Random {
 protected:
  static constexpr std::int64_t B = 4, T = 37, C = 53;
  static constexpr double p = 0.3;

  // The mask of a slice of ones: samples from first_sample on, at these positions.
  std::vector<double> mask(std::int64_t batch, const std::vector<double>& positions, std::int64_t first_sample,
                           std::uint64_t key = 6, double probability = p, DType type = DType::f64) {
    const std::int64_t length = static_cast<std::int64_t>(positions.size());
    const Shape shape{batch * length, C};
    const Tensor y = box_.make(type, shape);
    dropout({.y = y,
             .x = box_.make(type, shape, constant(1)),
             .positions = box_.make(DType::i32, {length}, positions),
             .probability = probability,
             .key = key,
             .first_sample = first_sample},
            box_.stream(2));
    return box_.read(y);
  }
  static std::vector<double> range(std::int64_t first, std::int64_t count) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>(first + i));
    return values;
  }
};

TEST_F(Dropping, KeepsAsManyAsItShouldAndScalesThem) {
  for (const double probability : {0.0, 0.01, 0.1, 0.5, 0.9}) {
    const std::vector<double> y = mask(B * 20, range(0, T), 0, 6, probability);
    double kept = 0;
    for (const double v : y) {
      kept += v != 0;
      if (v != 0) {
        EXPECT_NEAR(v, 1 / (1 - probability), 1e-12);
      }
    }
    const double count = static_cast<double>(y.size()), spread = std::sqrt(probability * (1 - probability) / count);
    EXPECT_NEAR(kept / count, 1 - probability, 5 * spread + 1e-12);
  }
}

TEST_F(Dropping, EverySliceOfBatchAndSequenceSeesTheMaskOfTheWhole) {
  const std::vector<double> whole = mask(B, range(0, T), 10);
  const auto at = [&](std::int64_t b, std::int64_t t, std::int64_t c) { return whole[(b * T + t) * C + c]; };
  const std::vector<double> samples = mask(2, range(0, T), 11);
  for (std::int64_t i = 0; i < 2 * T * C; ++i) ASSERT_EQ(samples[i], at(1 + i / (T * C), i / C % T, i % C));
  const std::vector<double> tail = mask(B, range(20, T - 20), 10);
  for (std::int64_t i = 0; i < B * (T - 20) * C; ++i)
    ASSERT_EQ(tail[i], at(i / ((T - 20) * C), 20 + i / C % (T - 20), i % C));
  const std::vector<double> picked = {3, 30, 4, 29};  // two chunks, as context parallelism deals them
  const std::vector<double> chunks = mask(1, picked, 13);
  for (std::int64_t t = 0; t < 4; ++t)
    for (std::int64_t c = 0; c < C; ++c) ASSERT_EQ(chunks[t * C + c], at(3, static_cast<std::int64_t>(picked[t]), c));
}

// Runs that begin and end in the middle of samples, as sequence parallelism deals them.
TEST_F(Dropping, EveryRunOfRowsSeesTheMaskOfTheWhole) {
  const std::vector<double> whole = mask(B, range(2, T), 10);
  const Tensor positions = box_.make(DType::i32, {T}, range(2, T));
  for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, B * T},
                                     {0, 1},
                                     {1, T},
                                     {T - 1, 2},
                                     {T, 2 * T},
                                     {2 * T + 5, T + 11},
                                     {B * T - 1, 1}}) {
    const Tensor y = box_.make(DType::f64, {count, C});
    dropout({.y = y,
             .x = box_.make(DType::f64, {count, C}, constant(1)),
             .positions = positions,
             .probability = p,
             .key = 6,
             .first_sample = 10,
             .first_row = first},
            box_.stream(2));
    for (std::int64_t i = 0; i < count * C; ++i) ASSERT_EQ(box_.read(y, i), whole[first * C + i]) << first << " " << i;
  }
}

// The mask is a promise to runs that are resumed and to other layouts: of these elements it is what it has always been.
TEST_F(Dropping, TheMaskIsWhatItWas) {
  std::uint64_t hash = 14695981039346656037u;
  for (const double v : mask(B, range(0, T), 10)) hash = (hash ^ (v != 0 ? 1u : 0u)) * 1099511628211u;
  EXPECT_EQ(hash, 13189658578743797273u);
}

TEST_F(Dropping, TheMaskIsTheDefinitions) {
  for (const double probability : {0.0, 0.01, 0.3, 0.999}) {
    const std::vector<double> got = mask(B, range(7, T), 10, 6, probability);
    for (std::int64_t i = 0; i < std::ssize(got); ++i)
      ASSERT_EQ(got[i] != 0, reference::keeps(6, probability, 10 + i / (T * C), 7 + i / C % T, i % C)) << i;
  }
}

TEST_F(Dropping, TheMaskIsTheSameInEveryType) {
  const std::vector<double> exact = mask(B, range(0, T), 0);
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    const std::vector<double> got = mask(B, range(0, T), 0, 6, p, type);
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i] != 0, exact[i] != 0) << name_of(type) << " " << i;
  }
}

// The masks of another key, of the next sample and of the next position agree with this one no more than chance would.
TEST_F(Dropping, MasksOfOtherKeysSamplesAndPositionsAreIndependent) {
  const std::vector<double> mine = mask(B, range(0, T), 0);
  const double count = static_cast<double>(mine.size()), agree = p * p + (1 - p) * (1 - p);
  for (const std::vector<double>& other :
       {mask(B, range(0, T), 0, 7), mask(B, range(0, T), B), mask(B, range(T, T), 0)}) {
    double same = 0;
    for (std::size_t i = 0; i < mine.size(); ++i) same += (mine[i] != 0) == (other[i] != 0);
    EXPECT_NEAR(same / count, agree, 5 * std::sqrt(agree * (1 - agree) / count));
  }
  double neighbours = 0;
  for (std::size_t i = 1; i < mine.size(); ++i) neighbours += (mine[i] != 0) == (mine[i - 1] != 0);
  EXPECT_NEAR(neighbours / count, agree, 5 * std::sqrt(agree * (1 - agree) / count));
}

// What was dropped gets no gradient, what was kept gets it scaled as it was.
TEST_F(Dropping, ItsBackwardIsTheSameMask) {
  const Shape shape{10, C};
  const Tensor x = box_.make(DType::f32, shape, normal()), y = box_.make(DType::f32, shape),
               positions = box_.make(DType::i32, {5}, range(0, 5));
  const Tensor dx = box_.make(DType::f32, shape);
  dropout({.y = y, .x = x, .positions = positions, .probability = p, .key = 1}, box_.stream());
  dropout({.y = dx, .x = box_.make(DType::f32, shape, constant(1)), .positions = positions, .probability = p, .key = 1},
          box_.stream());
  for (std::int64_t i = 0; i < shape.elements(); ++i)
    EXPECT_NEAR(box_.read(y, i), box_.read(dx, i) * box_.read(x, i), 1e-6 * std::abs(box_.read(x, i)));
}

}  // namespace
}  // namespace lockstep::tests
