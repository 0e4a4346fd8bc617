// A curve in few points keeps its extremes, its ends and its gaps.
#include "dashboard/downsample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

namespace lockstep::tests {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

bool same_curve(const std::vector<CurvePoint>& a, const std::vector<CurvePoint>& b) {
  return std::ranges::equal(a, b, [](const CurvePoint& x, const CurvePoint& y) {
    return x.step == y.step && x.time == y.time && (x.value == y.value || (std::isnan(x.value) && std::isnan(y.value)));
  });
}

// The same in words: sort points into groups, take what each must keep, put it in order.
std::vector<CurvePoint> plain_model(const std::vector<CurvePoint>& curve, std::size_t most) {
  if (curve.size() <= most) return curve;
  std::int64_t width = 1;
  const std::size_t groups = std::max<std::size_t>(1, most / 3 - 1);
  std::map<std::int64_t, std::vector<std::size_t>> members;
  for (;; width *= 2) {
    members.clear();
    const std::int64_t spread = curve.back().step / width - curve.front().step / width + 1;
    if (spread > static_cast<std::int64_t>(groups)) continue;
    for (std::size_t i = 0; i < curve.size(); ++i) members[curve[i].step / width].push_back(i);
    break;
  }
  std::map<std::size_t, CurvePoint> kept{{0, curve.front()}, {curve.size() - 1, curve.back()}};
  for (const auto& [group, places] : members) {
    std::optional<std::size_t> least, largest, unknown;
    for (const std::size_t i : places) {
      if (std::isnan(curve[i].value)) {
        if (!unknown) unknown = i;
        continue;
      }
      if (!least || curve[i].value < curve[*least].value) least = i;
      if (!largest || curve[i].value > curve[*largest].value) largest = i;
    }
    for (const auto& place : {least, largest, unknown})
      if (place) kept[*place] = curve[*place];
  }
  std::vector<CurvePoint> all;
  for (const auto& [place, point] : kept) all.push_back(point);
  return all;
}

TEST(Downsample, EqualsAPlainModelOnRandomCurves) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<CurvePoint> curve;
    std::int64_t step = static_cast<std::int64_t>(random() % 1000);
    const std::size_t size = random() % 3000 + 1;
    for (std::size_t i = 0; i < size; ++i) {
      step += static_cast<std::int64_t>(random() % (round % 5 + 1)) + (round % 2);
      const double value = random() % 50 == 0 ? kNaN : static_cast<double>(random() % 1000) / 7;
      curve.push_back({.step = step, .value = value, .time = static_cast<double>(i)});
    }
    const std::size_t most = random() % 200 + 6;
    const std::vector<CurvePoint> kept = downsample(curve, most);
    EXPECT_TRUE(same_curve(kept, plain_model(curve, most))) << "round " << round;
    EXPECT_LE(kept.size(), std::max<std::size_t>(most, 5)) << "round " << round;
  }
}

TEST(Downsample, KeepsASpikeOfOneStepInAMillion) {
  std::vector<CurvePoint> curve;
  for (std::int64_t step = 1; step <= 1'000'000; ++step) curve.push_back({.step = step, .value = 2, .time = 0});
  curve[777'776].value = 90;
  curve[123'455].value = kNaN;
  const std::vector<CurvePoint> kept = downsample(curve);
  EXPECT_LE(kept.size(), kMostCurvePoints);
  EXPECT_EQ(std::ranges::count_if(kept, [](const CurvePoint& p) { return p.step == 777'777 && p.value == 90; }), 1);
  EXPECT_EQ(std::ranges::count_if(kept, [](const CurvePoint& p) { return p.step == 123'456 && std::isnan(p.value); }),
            1);
  EXPECT_EQ(kept.front().step, 1);
  EXPECT_EQ(kept.back().step, 1'000'000);
}

TEST(Downsample, KeepsItsGroupsWhileTheCurveGrows) {
  std::vector<CurvePoint> curve;
  for (std::int64_t step = 0; step < 5000; ++step)
    curve.push_back({.step = step, .value = std::sin(static_cast<double>(step)), .time = 0});
  std::vector<CurvePoint> before = downsample(curve, 300);
  for (std::int64_t step = 5000; step < 5100; ++step)
    curve.push_back({.step = step, .value = std::sin(static_cast<double>(step)), .time = 0});
  std::vector<CurvePoint> after = downsample(curve, 300);
  // All but the last group, which was not full.
  std::erase_if(before, [](const CurvePoint& p) { return p.step >= 4800; });
  std::erase_if(after, [](const CurvePoint& p) { return p.step >= 4800; });
  EXPECT_TRUE(same_curve(before, after));
}

}  // namespace
}  // namespace lockstep::tests
