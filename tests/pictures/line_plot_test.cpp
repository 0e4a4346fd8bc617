// Line plots: points are where their numbers say, marks are round, and nothing that is not finite is drawn.
#include "pictures/line_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "svg_checks.h"

namespace lockstep::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using AxisUnit = PlotAxis::Unit;
using AxisScale = PlotAxis::Scale;

std::vector<std::string> mark_texts(const PlotAxis& axis, double low, double high, int most) {
  std::vector<std::string> texts;
  for (const auto& [value, text] : PlotScale(axis, low, high).marks(most)) texts.push_back(text);
  return texts;
}

// Where dots and lines are, in the order in which they are drawn.
std::vector<std::pair<double, double>> dots_of(const std::string& svg) {
  std::vector<std::pair<double, double>> all;
  const std::regex pattern("<circle class=\"dot [^\"]*\" cx=\"([^\"]*)\" cy=\"([^\"]*)\" r=\"4\"><title>");
  for (std::sregex_iterator at(svg.begin(), svg.end(), pattern), none; at != none; ++at)
    all.emplace_back(std::stod((*at)[1]), std::stod((*at)[2]));
  return all;
}
std::vector<std::pair<double, double>> line_of(const std::string& svg) {
  std::vector<std::pair<double, double>> all;
  std::smatch found;
  if (!std::regex_search(svg, found, std::regex("<polyline class=\"line [^\"]*\" points=\"([^\"]*)\"/>"))) return all;
  std::istringstream in(found[1]);
  char comma = 0;
  for (double x = 0, y = 0; in >> x >> comma >> y;) all.emplace_back(x, y);
  return all;
}

LinePlot plot_of(std::vector<std::pair<double, double>> points) {
  return {.title = "a title",
          .subtitle = "",
          .x = {.name = "ranks"},
          .y = {.name = "time"},
          .series = {{.name = "one", .points = std::move(points), .dots = true}},
          .references = {}};
}

void expect_legible(const std::string& svg) {
  expect_well_formed(svg);
  expect_texts_within_page(svg);
  expect_no_text_over_another(svg);
  EXPECT_EQ(occurrences(svg, "prefers-color-scheme:dark"), 1u);
  for (const char* word : {"nan", "inf"}) EXPECT_THAT(svg, Not(HasSubstr(word)));
}

TEST(LinePlot, PutsPointsInProportionOnALinearAxis) {
  const std::string svg = svg_picture(plot_of({{0, 10}, {1, 30}, {4, 20}}));
  const auto points = dots_of(svg);
  ASSERT_EQ(points.size(), 3u);
  EXPECT_NEAR((points[2].first - points[0].first) / (points[1].first - points[0].first), 4, 0.01);
  EXPECT_NEAR((points[0].second - points[1].second) / (points[0].second - points[2].second), 2, 0.01);
  EXPECT_GT(points[0].second, points[1].second) << "upwards";
  const auto line = line_of(svg);
  ASSERT_EQ(line.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(line[i].first, points[i].first, 0.01);
    EXPECT_NEAR(line[i].second, points[i].second, 0.01);
  }
  EXPECT_THAT(svg, HasSubstr("<title>one: 4, 20</title>"));
  EXPECT_EQ(occurrences(svg, ">one<"), 0u) << "one name needs no legend";
  expect_legible(svg);
}

TEST(LinePlot, PutsFactorsAtEqualDistancesOnALogarithmicAxis) {
  for (const AxisScale scale : {AxisScale::log, AxisScale::log2}) {
    LinePlot plot = plot_of({{8, 1e-3}, {64, 1e-2}, {512, 0.1}});
    plot.x.scale = plot.y.scale = scale;
    plot.y.unit = AxisUnit::seconds;
    const std::string svg = svg_picture(plot);
    const auto points = dots_of(svg);
    EXPECT_NEAR(points[2].first - points[1].first, points[1].first - points[0].first, 0.02);
    EXPECT_NEAR(points[2].second - points[1].second, points[1].second - points[0].second, 0.02);
    expect_legible(svg);
  }
}

TEST(LinePlot, MarksAreRoundNumbersInTheUnitThatIsWritten) {
  EXPECT_THAT(mark_texts({}, 0, 10, 7), ElementsAre("0", "2", "4", "6", "8", "10"));
  EXPECT_THAT(mark_texts({}, -1, 1, 5), ElementsAre("-1", "-0.5", "0", "0.5", "1"));
  EXPECT_THAT(mark_texts({}, 0, 20'000, 5), ElementsAre("0", "5,000", "10,000", "15,000", "20,000"));
  EXPECT_THAT(mark_texts({}, 0, 3e9, 4), ElementsAre("0", "1e+09", "2e+09", "3e+09"));
  EXPECT_THAT(mark_texts({.name = "", .unit = AxisUnit::share}, 0.5, 1, 6),
              ElementsAre("50 %", "60 %", "70 %", "80 %", "90 %", "100 %"));
  EXPECT_THAT(mark_texts({.name = "", .unit = AxisUnit::seconds, .from_zero = true}, 0.012, 0.03, 4),
              ElementsAre("0", "10 ms", "20 ms", "30 ms"));
  EXPECT_THAT(mark_texts({.name = "", .unit = AxisUnit::bytes, .from_zero = true}, 1e9, 6.5e9, 4),
              ElementsAre("0", "2 GiB", "4 GiB", "6 GiB"));
  for (const double high : {1.0, 1.3, 1.9, 2.1, 3.7, 7.7, 9.99, 1e-30, 1e30})
    for (const int most : {5, 7, 10}) {
      const auto texts = mark_texts({}, 0.1 * high, high, most);
      EXPECT_GE(texts.size(), 2u) << high << " " << most;
      EXPECT_LE(texts.size(), static_cast<std::size_t>(most)) << high << " " << most;
    }
}

TEST(LinePlot, MarksOfALogarithmicAxisArePowersAndWhatFitsBetweenThem) {
  const PlotAxis log{.name = "", .scale = AxisScale::log};
  EXPECT_THAT(mark_texts(log, 1, 1e4, 5), ElementsAre("1", "10", "100", "1,000", "10,000"));
  EXPECT_THAT(mark_texts(log, 1, 100, 7), ElementsAre("1", "2", "5", "10", "20", "50", "100"));
  EXPECT_THAT(mark_texts(log, 2, 7, 7), ElementsAre("2", "3", "4", "5", "6", "7"));
  EXPECT_THAT(mark_texts(log, 1e-8, 1e8, 6), ElementsAre("1e-06", "0.001", "1", "1,000", "1e+06"));
  EXPECT_THAT(mark_texts(log, 101, 104, 5), ElementsAre("101", "102", "103", "104")) << "a narrow range";
  EXPECT_THAT(mark_texts({.name = "", .unit = AxisUnit::seconds, .scale = AxisScale::log}, 1e-6, 10, 8),
              ElementsAre("1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s", "10 s"));
  EXPECT_THAT(mark_texts({.name = "", .unit = AxisUnit::bytes, .scale = AxisScale::log}, 0x1p28, 0x1p31, 6),
              ElementsAre("256 MiB", "512 MiB", "1 GiB", "2 GiB"));
  EXPECT_THAT(mark_texts({.name = "", .scale = AxisScale::log2}, 8, 16'384, 12),
              ElementsAre("8", "16", "32", "64", "128", "256", "512", "1,024", "2,048", "4,096", "8,192", "16,384"));
  EXPECT_LE(mark_texts({.name = "", .scale = AxisScale::log2}, 8, 16'384, 5).size(), 5u);
}

TEST(LinePlot, DrawsASinglePointAndEqualValues) {
  for (const AxisScale scale : {AxisScale::linear, AxisScale::log, AxisScale::log2})
    for (const double value : {1.0, 3.7e-9, 5e20}) {
      LinePlot plot = plot_of({{value, value}});
      plot.x.scale = plot.y.scale = scale;
      plot.series[0].dots = false;
      const std::string one = svg_picture(plot);
      EXPECT_EQ(dots_of(one).size(), 1u) << "a point without a line is a dot";
      EXPECT_TRUE(line_of(one).empty());
      expect_legible(one);
      plot.series[0].points = {{value, value}, {2 * value, value}};
      const std::string level = svg_picture(plot);
      EXPECT_EQ(line_of(level)[0].second, line_of(level)[1].second);
      expect_legible(level);
    }
  expect_legible(svg_picture(plot_of({{0, 0}})));
}

TEST(LinePlot, RefusesWhatCannotBeDrawn) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  for (const double bad : {nan, inf, -inf}) {
    EXPECT_THROW(svg_picture(plot_of({{1, 1}, {bad, 2}})), ProgramError);
    EXPECT_THROW(svg_picture(plot_of({{1, 1}, {2, bad}})), ProgramError);
    LinePlot plot = plot_of({{1, 1}});
    plot.references = {{bad, "there"}};
    EXPECT_THROW(svg_picture(plot), ProgramError);
  }
  EXPECT_THROW(svg_picture(plot_of({})), ProgramError);
  EXPECT_THROW(svg_picture(plot_of({{-1e308, 1}, {1e308, 1}})), ProgramError) << "a range that is not finite";
  LinePlot plot = plot_of({{1, 1}, {2, 0}});
  EXPECT_NO_THROW(svg_picture(plot));
  plot.y.scale = AxisScale::log;
  EXPECT_THROW(svg_picture(plot), ProgramError);
}

TEST(LinePlot, WritesNamesAsGivenWhateverTheyHold) {
  LinePlot plot = plot_of({{1, 1}, {2, 2}});
  plot.title = plot.subtitle = plot.x.name = plot.y.name = "<b> & \"c\"";
  plot.series.push_back({.name = "<two> & more", .points = {{1, 2}}, .dots = true});
  plot.references = {{1.5, "</text> & so on"}};
  const std::string svg = svg_picture(plot);
  expect_legible(svg);
  EXPECT_EQ(occurrences(svg, ">&lt;b&gt; &amp; &quot;c&quot;<"), 4u);
  EXPECT_THAT(svg, HasSubstr(">&lt;two&gt; &amp; more<"));
  EXPECT_THAT(svg, HasSubstr("<title>&lt;two&gt; &amp; more: 1, 2</title>"));
  EXPECT_THAT(svg, HasSubstr(">&lt;/text&gt; &amp; so on<"));
}

TEST(LinePlot, HasOneColourAndOneLegendEntryPerName) {
  LinePlot plot = plot_of({{1, 1}, {2, 2}});
  for (int i = 0; i < 10; ++i)
    plot.series.push_back({.name = "a long name of series " + std::to_string(i), .points = {{1, i}, {3, i + 1}}});
  plot.series.push_back({.name = "one", .points = {{4, 1}, {5, 2}}});  // the same line after a gap
  const std::string svg = svg_picture(plot);
  expect_legible(svg);
  for (const LinePlot::Series& series : plot.series) EXPECT_EQ(occurrences(svg, ">" + series.name + "<"), 1u);
  EXPECT_EQ(occurrences(svg, "<polyline class=\"line l0\""), 2u);
  EXPECT_EQ(occurrences(svg, "<polyline class=\"line l0 dashed\""), 1u) << "the ninth name has the first one's colour";
  EXPECT_EQ(occurrences(svg, "<polyline "), 12u);
  std::smatch width;
  ASSERT_TRUE(std::regex_search(svg, width, std::regex("<svg[^>]* width=\"(\\d+)\"")));
  EXPECT_LT(std::stoi(width[1]), 750) << "a long legend has several rows";
  EXPECT_EQ(svg, svg_picture(plot)) << "the same bytes";
}

TEST(LinePlot, NamesReferenceLinesAboveThemWithoutOverlap) {
  LinePlot plot = plot_of({{0, 1}, {100, 2}});
  for (const double x : {0.0, 50.0, 51.0, 52.0, 100.0, 120.0})
    plot.references.push_back({x, "reference at " + std::to_string(x)});
  const std::string svg = svg_picture(plot);
  expect_legible(svg);
  EXPECT_EQ(occurrences(svg, "<line class=\"reference\""), 6u);
  std::smatch middle;
  ASSERT_TRUE(std::regex_search(svg, middle, std::regex("<line class=\"reference\" x1=\"([^\"]*)\"[^/]*/>")));
  const auto points = dots_of(svg);
  EXPECT_NEAR(std::stod(middle[1]), points[0].first, 0.01);
  EXPECT_LT(points[1].first, 600) << "a reference beyond the points is within the plot";
}

}  // namespace
}  // namespace lockstep::tests
