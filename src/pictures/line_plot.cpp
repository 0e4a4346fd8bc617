#include "pictures/line_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "pictures/svg_page.h"

namespace lockstep {

namespace {

// In pixels.
constexpr double kWidth = 640, kHeight = 300, kTextSize = 12, kLine = 18, kSample = 24;
constexpr int kMostMarksOfY = 7, kMostMarksOfX = 10, kFewestMarks = 5;

// On light paper darker than fills::kinds, in the same order, since a line is thinner than what is filled.
constexpr std::string_view kInks[] = {"#0969da", "#bc4c00", "#1a7f37", "#8250df",
                                      "#bf3989", "#1b7c83", "#9a6700", "#59636e"};
static_assert(std::size(kInks) == std::size(fills::kinds));

struct Extent {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  void take(double value) { low = std::min(low, value), high = std::max(high, value); }
};

class PlotDrawing {
 public:
  PlotDrawing(const LinePlot& plot, SvgPage& page)
      : plot_(plot),
        page_(page),
        x_(plot.x, extent(true).low, extent(true).high),
        y_(plot.y, extent(false).low, extent(false).high) {
    for (const LinePlot::Series& series : plot.series)
      if (std::ranges::find(names_, series.name) == names_.end()) names_.push_back(series.name);
  }

  std::size_t inks() const { return std::min(names_.size(), std::size(kInks)); }

  void draw(bool first) {
    const PlotScale::Marks marks = y_.marks(kMostMarksOfY);
    for (const auto& [value, text] : marks) left_ = std::max(left_, text_width(text, kTextSize) + 8);
    left_ += SvgPage::kMargin;
    page_.longest = left_ + kWidth - SvgPage::kMargin;
    if (!plot_.title.empty()) first ? page_.title(plot_.title) : page_.caption(plot_.title);
    if (!plot_.subtitle.empty()) page_.subtitle(plot_.subtitle);
    if (names_.size() > 1) draw_legend();
    page_.y += 24;
    if (!plot_.y.name.empty()) page_.text(SvgPage::kMargin, page_.y, "soft", plot_.y.name);
    draw_reference_names();
    top_ = page_.y + 8;
    page_.rect({left_, top_, kWidth, kHeight}, "rest");
    draw_y_axis(marks);
    draw_x_axis();
    for (const LinePlot::Reference& reference : plot_.references)
      page_.line(at_x(reference.x), top_, at_x(reference.x), top_ + kHeight, "reference");
    for (const LinePlot::Series& series : plot_.series) draw(series);
  }

  // Of as many inks as the plot with most of them has.
  static void add_styles(SvgPage& page, std::size_t inks) {
    std::string light =
        ".line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}.dashed{stroke-dasharray:6 5}"
        ".dot{stroke:#fff;stroke-width:1.2}.reference{stroke:#59636e;stroke-width:1.3;stroke-dasharray:3 4}";
    std::string dark = ".dot{stroke:#0d1117}.reference{stroke:#9198a1}";
    for (std::size_t i = 0; i < inks; ++i) {
      light += fmt::format(".l{0}{{stroke:{1}}}.d{0}{{fill:{1}}}", i, kInks[i]);
      dark += fmt::format(".l{0}{{stroke:{1}}}.d{0}{{fill:{1}}}", i, fills::kinds[i]);
    }
    page.add_style(light, dark);
  }

 private:
  Extent extent(bool of_x) const {
    Extent extent;
    for (const LinePlot::Series& series : plot_.series)
      for (const auto& [x, y] : series.points) {
        LOCKSTEP_CHECK(std::isfinite(x) && std::isfinite(y), "a point of {} at {}, {}", series.name, x, y);
        extent.take(of_x ? x : y);
      }
    LOCKSTEP_CHECK(extent.low <= extent.high, "a plot without a point: {}", plot_.title);
    for (const LinePlot::Reference& reference : plot_.references) {
      LOCKSTEP_CHECK(std::isfinite(reference.x), "{} is at {}", reference.name, reference.x);
      if (of_x) extent.take(reference.x);
    }
    return extent;
  }

  double at_x(double value) const { return left_ + kWidth * x_.at(value); }
  double at_y(double value) const { return top_ + kHeight * (1 - y_.at(value)); }

  std::size_t colour(const std::string& name) const {
    return static_cast<std::size_t>(std::ranges::find(names_, name) - names_.begin()) % std::size(kInks);
  }
  // The classes of a line. After eight names colours repeat: those are dashed.
  std::string line_style(const LinePlot::Series& series) const {
    const auto nth = static_cast<std::size_t>(std::ranges::find(names_, series.name) - names_.begin());
    const bool dashed = series.dashed != (nth / std::size(kInks) % 2 == 1);
    return fmt::format("line l{}{}", colour(series.name), dashed ? " dashed" : "");
  }

  void draw_legend() {
    page_.y += 24;
    double x = SvgPage::kMargin;
    for (const std::string& name : names_) {
      const LinePlot::Series& series = *std::ranges::find(plot_.series, name, &LinePlot::Series::name);
      const double wide = kSample + 6 + text_width(name, kTextSize);
      if (x > SvgPage::kMargin && x + wide > left_ + kWidth) x = SvgPage::kMargin, page_.y += kLine;
      if (series.line) page_.line(x, page_.y - 4, x + kSample, page_.y - 4, line_style(series));
      if (series.dots) page_.dot(x + kSample / 2, page_.y - 4, 4, fmt::format("dot d{}", colour(name)));
      page_.text(x + kSample + 6, page_.y, "ink", name);
      x += wide + 16;
    }
  }

  // Above the plot, each over its line where there is room, in as many rows as that needs.
  void draw_reference_names() {
    struct Row {
      std::vector<std::pair<double, double>> taken;
    };
    std::vector<Row> rows;
    if (!plot_.y.name.empty())  // the axis's name has the first row's beginning
      rows.push_back({{{0, SvgPage::kMargin + text_width(plot_.y.name, kTextSize) + 12}}});
    std::vector<std::pair<std::size_t, double>> places;  // row and middle, by reference
    for (const LinePlot::Reference& reference : plot_.references) {
      const double half = text_width(reference.name, kTextSize) / 2;
      const double middle = std::clamp(at_x(reference.x), SvgPage::kMargin + half,
                                       std::max(SvgPage::kMargin + half, left_ + kWidth - half));
      const auto fits = [&](const Row& row) {
        return std::ranges::none_of(
            row.taken, [&](const auto& span) { return middle - half < span.second && span.first < middle + half; });
      };
      std::size_t row = 0;
      while (row < rows.size() && !fits(rows[row])) ++row;
      if (row == rows.size()) rows.emplace_back();
      rows[row].taken.emplace_back(middle - half - 6, middle + half + 6);
      places.emplace_back(row, middle);
    }
    for (std::size_t i = 0; i < places.size(); ++i)
      page_.text(places[i].second, page_.y + kLine * static_cast<double>(places[i].first), "ink mid",
                 plot_.references[i].name);
    if (rows.size() > 1) page_.y += kLine * static_cast<double>(rows.size() - 1);
  }

  void draw_y_axis(const PlotScale::Marks& marks) {
    for (const auto& [value, text] : marks) {
      page_.line(left_, at_y(value), left_ + kWidth, at_y(value), "mark");
      page_.text(left_ - 8, at_y(value) + 4, "soft end", text);
    }
  }

  // As many marks as have room for their texts.
  void draw_x_axis() {
    PlotScale::Marks marks;
    for (int most = kMostMarksOfX; most >= kFewestMarks; --most) {
      marks = x_.marks(most);
      double nearest = kWidth, widest = 0;
      for (std::size_t i = 0; i < marks.size(); ++i) {
        widest = std::max(widest, text_width(marks[i].second, kTextSize));
        if (i > 0) nearest = std::min(nearest, at_x(marks[i].first) - at_x(marks[i - 1].first));
      }
      if (widest + 6 <= nearest) break;
    }
    const double bottom = top_ + kHeight;
    for (const auto& [value, text] : marks) {
      page_.line(at_x(value), top_, at_x(value), bottom + 5, "mark");
      page_.text(at_x(value), bottom + 19, "soft mid", text);
    }
    if (!plot_.x.name.empty()) page_.text(left_ + kWidth / 2, bottom + 40, "soft mid", plot_.x.name);
    page_.y = bottom + 26;
  }

  void draw(const LinePlot::Series& series) {
    // One point has no line: it is a dot.
    const bool dots = series.dots || !series.line || series.points.size() == 1;
    std::string points;
    for (const auto& [x, y] : series.points)
      points += fmt::format("{}{:.2f},{:.2f}", points.empty() ? "" : " ", at_x(x), at_y(y));
    if (series.line && series.points.size() > 1) page_.stroke(points, line_style(series));
    for (const auto& [x, y] : series.points)
      if (dots)
        page_.dot(at_x(x), at_y(y), 4, fmt::format("dot d{}", colour(series.name)),
                  fmt::format("{}{}{}, {}", series.name, series.name.empty() ? "" : ": ", x_.text(x), y_.text(y)));
  }

  const LinePlot& plot_;
  SvgPage& page_;
  PlotScale x_, y_;
  std::vector<std::string> names_;  // of the legend
  double left_ = 0, top_ = 0;
};

}  // namespace

std::string svg_picture(const LinePlot& plot) { return svg_panels({plot}); }

std::string svg_panels(const std::vector<LinePlot>& plots) {
  SvgPage page;
  std::size_t inks = 0;
  for (const LinePlot& plot : plots) inks = std::max(inks, PlotDrawing(plot, page).inks());
  PlotDrawing::add_styles(page, inks);
  for (std::size_t i = 0; i < plots.size(); ++i) {
    if (i > 0) page.y += 28;  // below the name of the axis before
    PlotDrawing(plots[i], page).draw(i == 0);
  }
  return page.str();
}

}  // namespace lockstep
