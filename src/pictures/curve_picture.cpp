#include "pictures/curve_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "pictures/svg_page.h"

namespace lockstep {

namespace {

constexpr double kPlotWidth = 620, kPlotHeight = 200, kPlotLeft = 76,
                 kNoValue = std::numeric_limits<double>::infinity();

struct Range {
  double low = kNoValue, high = -kNoValue;
  void take(double value) { low = std::min(low, value), high = std::max(high, value); }
  // Something to draw in, also where all values are equal.
  void widen() {
    if (low > high) low = 0, high = 1;
    const double room = high > low ? 0.04 * (high - low) : std::max(1e-12, 0.05 * std::abs(high));
    low -= room, high += room;
  }
};

struct Frame {
  Range x, y;
  double top = 0;
  double at_x(double value) const { return kPlotLeft + kPlotWidth * (value - x.low) / (x.high - x.low); }
  double at_y(double value) const { return top + kPlotHeight * (y.high - value) / (y.high - y.low); }
};

// The points of one curve between gaps: by pixel the first value, the least, the greatest and the last.
std::vector<std::string> strokes(const CurvePicture::Curve& curve, const Frame& frame) {
  struct Pixel {
    double first, last;
    Range range;
  };
  std::vector<std::string> all;
  std::map<int, Pixel> pixels;
  const auto finish = [&] {
    if (pixels.empty()) return;
    std::string& points = all.emplace_back();
    for (const auto& [x, pixel] : pixels)
      for (const double y : {pixel.first, pixel.range.low, pixel.range.high, pixel.last})
        points += fmt::format("{},{:.1f} ", x, frame.at_y(y));
    if (pixels.size() == 1)
      points += fmt::format("{},{:.1f} ", pixels.begin()->first + 2, frame.at_y(pixels.begin()->second.last));
    pixels.clear();
  };
  for (const auto& [x, y] : curve.points) {
    if (!std::isfinite(y)) {
      finish();
      continue;
    }
    Pixel& pixel = pixels.try_emplace(static_cast<int>(std::lround(frame.at_x(x))), Pixel{y, y, {}}).first->second;
    pixel.last = y;
    pixel.range.take(y);
  }
  finish();
  return all;
}

}  // namespace

std::vector<double> scale_marks(double low, double high, int most) {
  const double power = std::pow(10, std::floor(std::log10((high - low) / most)));
  double step = power;
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    step = power * factor;
    if ((high - low) / step <= most) break;
  }
  std::vector<double> marks;
  for (double n = std::ceil(low / step); n * step <= high && std::ssize(marks) < most; ++n)
    marks.push_back(n * step + 0.0);  // never -0
  return marks;
}

std::string svg_picture(const CurvePicture& picture) {
  SvgPage page;
  page.caption(picture.title);
  if (picture.curves.size() > 1) {
    page.begin_keys(SvgPage::kMargin);
    for (std::size_t i = 0; i < picture.curves.size(); ++i)
      page.key(fills::kinds[i % std::size(fills::kinds)], picture.curves[i].name);
  }
  Frame frame{.x = {}, .y = {}, .top = page.y + 14};
  for (const auto& curve : picture.curves)
    for (const auto& [x, y] : curve.points)
      if (std::isfinite(y)) frame.x.take(x), frame.y.take(y);
  frame.x.widen(), frame.y.widen();
  page.rect({kPlotLeft, frame.top, kPlotWidth, kPlotHeight}, "rest");
  for (const double y : scale_marks(frame.y.low, frame.y.high, 5)) {
    page.line(kPlotLeft, frame.at_y(y), kPlotLeft + kPlotWidth, frame.at_y(y), "mark");
    page.text(kPlotLeft - 6, frame.at_y(y) + 4, "soft end", fmt::format("{:.6g}", y));
  }
  for (const double x : scale_marks(frame.x.low, frame.x.high, 8))
    page.text(frame.at_x(x), frame.top + kPlotHeight + 16, "soft mid", fmt::format("{:.6g}", x));
  page.text(kPlotLeft + kPlotWidth, frame.top + kPlotHeight + 32, "soft end", picture.x_name);
  for (std::size_t i = 0; i < picture.curves.size(); ++i)
    for (const std::string& points : strokes(picture.curves[i], frame))
      page.polyline(points, fills::kinds[i % std::size(fills::kinds)]);
  return page.str();
}

}  // namespace lockstep
