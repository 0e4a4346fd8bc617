// Two views overlap when they have a byte in common: held to the set of all their bytes.
#include "tensor/overlap.h"

#include <gtest/gtest.h>

#include <set>

#include "base/philox.h"

namespace lockstep {
namespace {

char room[4096];

std::set<const char*> bytes_of(const ConstTensor& t) {
  std::set<const char*> bytes;
  for (std::int64_t n = 0; n < t.elements(); ++n) {
    std::int64_t rest = n, offset = 0;
    for (int i = t.dims() - 1; i >= 0; --i) {
      offset += rest % t.dim(i) * t.stride(i);
      rest /= t.dim(i);
    }
    for (std::int64_t i = 0; i < size_of(t.dtype()); ++i)
      bytes.insert(static_cast<const char*>(t.raw()) + offset * size_of(t.dtype()) + i);
  }
  return bytes;
}

bool share(const ConstTensor& a, const ConstTensor& b) {
  const std::set<const char*> of_a = bytes_of(a);
  for (const char* byte : bytes_of(b))
    if (of_a.contains(byte)) return true;
  return false;
}

// Numbers below a limit, one after the other.
struct Draw {
  std::uint64_t seed;
  std::uint64_t next = 0;
  std::int64_t operator()(std::int64_t below) {
    const auto bits = philox(seed, next++);
    return static_cast<std::int64_t>(bits[0] % static_cast<std::uint32_t>(below));
  }
};

TEST(Overlap, OfSlicesOfOneTensorIsExact) {
  const Tensor whole(room, DType::f32, Device::cpu, {3, 4, 5, 6});
  int overlapping = 0, between = 0;
  for (std::uint64_t trial = 0; trial < 3000; ++trial) {
    Draw draw{trial};
    Tensor a = whole, b = whole;
    for (int i = 0; i < 4; ++i) {
      const std::int64_t count = draw(whole.dim(i)) + 1, room_left = whole.dim(i) - count + 1;
      a = a.slice(i, draw(room_left), count);
      b = b.slice(i, draw(room_left), count);
    }
    ASSERT_EQ(apart(a, b), !share(a, b)) << "trial " << trial;
    ASSERT_EQ(apart(b, a), !share(a, b)) << "trial " << trial;
    overlapping += share(a, b);
    // Apart, though neither ends before the other begins.
    between +=
        apart(a, b) && *bytes_of(a).begin() < *bytes_of(b).rbegin() && *bytes_of(b).begin() < *bytes_of(a).rbegin();
  }
  EXPECT_GT(overlapping, 300);
  EXPECT_GT(between, 300);
}

// Never the other way round: what is said to be apart is.
TEST(Overlap, OfViewsWithOtherStridesIsThatOfTheirRanges) {
  const Tensor whole(room, DType::f32, Device::cpu, {4, 6, 8});
  const Tensor half = whole.slice(2, 0, 4), dense(room + 16, DType::f32, Device::cpu, {4, 6, 4});
  EXPECT_FALSE(apart(half, dense));
  EXPECT_TRUE(apart(half, Tensor(room + 4 * 6 * 8 * 4, DType::f32, Device::cpu, {4, 6, 4})));
  EXPECT_TRUE(apart(half, Tensor(room + (4 * 6 * 8 - 4) * 4, DType::f32, Device::cpu, {4, 6, 4})));
  EXPECT_FALSE(apart(half, Tensor(room + (4 * 6 * 8 - 5) * 4, DType::f32, Device::cpu, {4, 6, 4})));
}

TEST(Overlap, OfOtherTypesIsOfTheirBytes) {
  const Tensor whole(room, DType::f32, Device::cpu, {3, 4});
  const Tensor left = whole.slice(1, 0, 2).narrowed(DType::bf16);  // in the first of its row's two elements
  EXPECT_FALSE(apart(left, whole.slice(1, 0, 2)));
  EXPECT_TRUE(apart(left, whole.slice(1, 1, 2)));
}

TEST(Overlap, WhatThereIsOneOfTakesNoSteps) {
  const Tensor one = Tensor(room, DType::f32, Device::cpu, {2, 8, 6, 4}).slice(0, 0, 1).slice(1, 0, 3);
  const Tensor other(room, DType::f32, Device::cpu, {1, 3, 6, 4});
  ASSERT_NE(one.stride(0), other.stride(0));
  EXPECT_TRUE(apart(one.slice(2, 0, 3), other.slice(2, 3, 3)));
  EXPECT_FALSE(apart(one.slice(2, 0, 3), other.slice(2, 2, 3)));
}

TEST(Overlap, NothingOverlapsNothing) {
  const Tensor whole(room, DType::f32, Device::cpu, {3, 4}), none = whole.slice(0, 1, 0);
  EXPECT_TRUE(apart(whole, none));
  EXPECT_TRUE(
      apart(Tensor(nullptr, DType::f32, Device::meta, {3, 4}), Tensor(nullptr, DType::f32, Device::meta, {3, 4})));
}

TEST(Overlap, TheSameViewIsOfTheSameElements) {
  const Tensor whole(room, DType::f32, Device::cpu, {3, 4, 5}), part = whole.slice(1, 0, 2);
  EXPECT_TRUE(same_view(part, whole.slice(1, 0, 2)));
  EXPECT_FALSE(same_view(part, whole.slice(1, 1, 2)));
  EXPECT_FALSE(same_view(part, whole));
  EXPECT_FALSE(same_view(part, part.narrowed(DType::bf16)));
  EXPECT_FALSE(same_view(part, Tensor(room, DType::f32, Device::cpu, {3, 2, 5})));
  EXPECT_FALSE(same_view(whole, Tensor(room, DType::i32, Device::cpu, {3, 4, 5})));
  // What there is one of takes no steps.
  EXPECT_TRUE(same_view(whole.slice(0, 0, 1), Tensor(room, DType::f32, Device::cpu, {1, 4, 5})));
  EXPECT_TRUE(same_view(part.slice(0, 0, 1), Tensor(room, DType::f32, Device::cpu, {1, 2, 5})));
}

}  // namespace
}  // namespace lockstep
