// The embedding's gradient summed by rows: bit for bit what a sum of all rows is, signs of zeros and values that are
// not finite included.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <set>

#include "comm/ranks.h"
#include "parallel/embedding_rows.h"
#include "support/devices.h"

namespace lockstep::tests {
namespace {

constexpr std::int64_t kRows = 70, kWidth = 3;

// Tokens that a rank has: few, some of them others' too, and of some ranks none.
std::vector<std::int32_t> tokens_of(int rank, int few) {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < few && rank % 4 != 2; ++i)
    tokens.push_back(static_cast<std::int32_t>((i * i * 5 + rank % 3) % kRows));
  return tokens;
}

// Zero outside of these rows; in them zeros of both signs, values of many magnitudes and some that are not finite.
std::vector<float> table_of(int rank, const std::vector<std::int32_t>& tokens) {
  std::vector<float> table(static_cast<std::size_t>(kRows * kWidth));
  for (const std::int32_t token : tokens)
    for (std::int64_t c = 0; c < kWidth; ++c) {
      const std::int64_t i = token * kWidth + c;
      const float kinds[] = {-0.0f,
                             0.0f,
                             std::ldexp(1.0f + static_cast<float>(rank), static_cast<int>(i % 40) - 20),
                             -1e30f,
                             i == 15 ? std::numeric_limits<float>::quiet_NaN() : 1e-30f,
                             i == 30 ? std::numeric_limits<float>::infinity() : -0.0f};
      table[static_cast<std::size_t>(i)] = kinds[(i + (i % 7 == 0 ? rank : 0)) % 6];
    }
  return table;
}

TEST(EmbeddingRows, HaveTheBitsOfAllRows) {
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (const int few : {1, 4, 9, 200})
      for (const EmbeddingGradient form : {EmbeddingGradient::rows, EmbeddingGradient::automatic}) {
        std::set<std::int32_t> all;
        for (int r = 0; r < ranks; ++r)
          for (const std::int32_t token : tokens_of(r, few)) all.insert(token);
        each_rank(ranks, [&](Communicator& comm) {
          CpuDevice cpu;
          EmbeddingRows rows({.form = form, .rows = Part::whole(kRows), .width = kWidth, .most_tokens = ranks * few},
                             comm, cpu.memory(), cpu.stream());
          for (int step = 0; step < 2; ++step) {  // nothing is left of the first
            const std::vector<std::int32_t> tokens = tokens_of(comm.rank(), step == 0 ? 200 : few);
            if (step == 0 && ranks * few < kRows) continue;  // more than it has been told of
            rows.find(tokens);
            std::vector<float> one = table_of(comm.rank(), tokens), other = one;
            const Tensor table(one.data(), DType::f32, Device::cpu, {kRows * kWidth}),
                dense(other.data(), DType::f32, Device::cpu, {kRows * kWidth});
            comm.all_reduce(dense)->wait();
            if (rows.dense()) {
              EXPECT_EQ(form, EmbeddingGradient::automatic);
              continue;
            }
            if (const Tensor packed = rows.pack(table); packed.elements() > 0) comm.all_reduce(packed)->wait();
            rows.unpack(table);
            EXPECT_EQ(std::memcmp(one.data(), other.data(), one.size() * sizeof(float)), 0)
                << ranks << " ranks, " << few << " tokens, rank " << comm.rank();
            if (step == 1) {
              EXPECT_EQ(rows.pack(table).elements(), std::ssize(all) * kWidth);
              EXPECT_TRUE(form == EmbeddingGradient::rows || std::ssize(all) <= kRows / 2);
            }
          }
          EXPECT_EQ(rows.dense(), form == EmbeddingGradient::automatic && std::ssize(all) > kRows / 2);
        });
      }
}

// Of a table that tensor parallelism splits, each rank has its part of the rows.
TEST(EmbeddingRows, OfAPartAreThoseOfItsTokens) {
  for (int ranks : {1, 3})
    each_rank(ranks, [&](Communicator& comm) {
      CpuDevice cpu;
      EmbeddingRows rows({.form = EmbeddingGradient::rows,
                          .rows = {.all = 100, .first = 30, .count = 33, .each = 35},
                          .width = 2,
                          .most_tokens = 100},
                         comm, cpu.memory(), cpu.stream());
      rows.find(std::vector<std::int32_t>{29, 30, 62, 63, 99, static_cast<std::int32_t>(40 + comm.rank())});
      std::vector<float> table(70);
      for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i);
      const Tensor packed = rows.pack(Tensor(table.data(), DType::f32, Device::cpu, {70}));
      std::vector<float> want{0, 1};
      for (int r = 0; r < ranks; ++r)
        for (int c = 0; c < 2; ++c) want.push_back(static_cast<float>(2 * (10 + r) + c));
      want.insert(want.end(), {64, 65});
      ASSERT_EQ(packed.elements(), std::ssize(want));
      for (std::size_t i = 0; i < want.size(); ++i) EXPECT_EQ(packed.data<float>()[i], want[i]) << i;
      rows.find(std::vector<std::int32_t>{29, 63});
      EXPECT_EQ(rows.pack(Tensor(table.data(), DType::f32, Device::cpu, {70})).elements(), 0);
    });
}

}  // namespace
}  // namespace lockstep::tests
