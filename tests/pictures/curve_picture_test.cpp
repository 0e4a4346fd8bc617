// Curves and bars: what is drawn is where its numbers say.
#include "pictures/curve_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "pictures/bars_picture.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The points of each polyline.
std::vector<std::vector<std::pair<double, double>>> polylines(const std::string& svg) {
  std::vector<std::vector<std::pair<double, double>>> all;
  const std::string begin = "<polyline points=\"";
  for (std::size_t at = 0; (at = svg.find(begin, at)) != std::string::npos; ++at) {
    const std::size_t from = at + begin.size();
    std::istringstream in(svg.substr(from, svg.find('"', from) - from));
    auto& points = all.emplace_back();
    char comma = 0;
    for (double x = 0, y = 0; in >> x >> comma >> y;) points.emplace_back(x, y);
  }
  return all;
}

TEST(CurvePictures, RiseWithTheirValuesAndKeepEverySpike) {
  CurvePicture picture{.title = "a < b", .x_name = "step", .curves = {{"one", {}}}};
  for (int i = 0; i < 100'000; ++i) picture.curves[0].points.emplace_back(i, i == 33'333 ? 1000 : i / 100'000.0);
  const std::string svg = svg_picture(picture);
  EXPECT_LT(svg.size(), 100'000u) << "a pixel has few points, however many steps there are";
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  const auto lines = polylines(svg);
  ASSERT_EQ(lines.size(), 1u);
  const auto& points = lines[0];
  double top = 1e9, bottom = -1e9;
  for (const auto& [x, y] : points) top = std::min(top, y), bottom = std::max(bottom, y);
  const auto spike = std::ranges::find(points, top, [](const auto& p) { return p.second; });
  EXPECT_NEAR((spike->first - points.front().first) / (points.back().first - points.front().first), 1.0 / 3, 0.01);
  EXPECT_GT(bottom - top, 150) << "the spike fills the picture";
  EXPECT_TRUE(std::ranges::is_sorted(points, {}, [](const auto& p) { return p.first; }));
}

TEST(CurvePictures, HaveAGapWhereAValueIsNotFinite) {
  const double bad = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(
      polylines(svg_picture({.title = "", .x_name = "", .curves = {{"", {{1, 1}, {2, bad}, {3, 2}, {4, 3}}}}})).size(),
      2u);
  EXPECT_EQ(polylines(svg_picture({.title = "", .x_name = "", .curves = {{"", {{1, bad}}}, {"", {}}}})).size(), 0u);
  for (const char* word : {"nan", "inf"})
    EXPECT_THAT(svg_picture({.title = "", .x_name = "", .curves = {{"", {{1, 5}, {2, 5}, {3, bad}}}}}),
                Not(HasSubstr(word)));
}

TEST(CurvePictures, AreMarkedAtRoundNumbers) {
  EXPECT_EQ(scale_marks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8}));
  EXPECT_EQ(scale_marks(95, 1007, 5), (std::vector<double>{200, 400, 600, 800, 1000}));
  EXPECT_EQ(scale_marks(-1, 1, 4), (std::vector<double>{-1, -0.5, 0, 0.5}));
  EXPECT_EQ(scale_marks(0.1, 0.35, 5).size(), 5u);
  EXPECT_FALSE(std::signbit(scale_marks(-1.36, 62.4, 8).front())) << "0, not -0";
}

TEST(BarsPictures, AreAsLongAsTheirValues) {
  const std::string svg = svg_picture(BarsPicture{
      .title = "t", .kinds = {"a", "b"}, .rows = {{"r", {1, 3}, {"first", "second"}}, {"s", {2, 0}, {"third", ""}}}});
  const auto width = [&](const std::string& tip) {
    const std::size_t end = svg.find("><title>" + tip), from = svg.rfind("width=\"", end) + 7;
    return std::stod(svg.substr(from, svg.find('"', from) - from));
  };
  EXPECT_NEAR(width("second"), 3 * width("first"), 0.02);
  EXPECT_NEAR(width("third"), 2 * width("first"), 0.02);
}

TEST(BarsPictures, HaveNoKeyOfWhatNoRowHas) {
  const std::string svg = svg_picture(
      BarsPicture{.title = "t", .kinds = {"seen", "unseen", "also"}, .rows = {{"r", {1, 0, 3}, {"x", "y", "z"}}}});
  EXPECT_NE(svg.find(">seen<"), std::string::npos);
  EXPECT_NE(svg.find(">also<"), std::string::npos);
  EXPECT_EQ(svg.find("unseen"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
