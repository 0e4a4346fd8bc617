// svg_picture.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "pictures/pipeline_picture.h"
#include "pictures/svg_page.h"
#include "pictures/timeline_grid.h"

namespace lockstep {

namespace {

// In pixels.
constexpr double kLeft = 72, kRow = 26, kGap = 3, kMarkPixels = 60;
constexpr double kNarrowest = 360, kWidest = 1400, kWidthOfStep = 18;

constexpr std::string_view kColours[] = {fills::blue, fills::green, fills::teal, fills::orange};  // by ChunkStep

// Later chunks are lighter.
std::string colour(ChunkStep step, int nth, int chunks) {
  return lighter(kColours[static_cast<int>(step)], chunks == 1 ? 0 : 0.62 * nth / (chunks - 1));
}

class SvgPicture {
 public:
  SvgPicture(std::span<const PicturePanel> panels, const SvgPictureOptions& options)
      : panels_(panels), options_(options) {
    double wanted = kNarrowest;
    for (const PicturePanel& panel : panels) {
      const TimelineGrid& grid = grids_.emplace_back(panel.line);
      horizon_ = std::max(horizon_, grid.first + grid.makespan);
      // In the mean a step is as wide as its label wants to be.
      wanted = std::max(wanted, kWidthOfStep * (grid.unit > 0 ? std::min(grid.makespan / grid.unit, 200.)
                                                              : static_cast<double>(grid.most_steps)));
    }
    width_ = std::min(wanted, kWidest);
  }

  std::string text() {
    page_.title(options_.title);
    page_.subtitle(options_.subtitle);
    for (std::size_t i = 0; i < panels_.size(); ++i) draw(panels_[i], grids_[i]);
    axis();
    legend();
    page_.reach(kLeft + width_ + 8, page_.y);
    return page_.str();
  }

 private:
  double x(double time) const { return kLeft + (horizon_ > 0 ? time / horizon_ * width_ : 0); }

  void draw(const PicturePanel& panel, const TimelineGrid& grid) {
    page_.caption(panel.caption);
    page_.y += 10;
    for (std::size_t s = 0; s < panel.line.stages.size(); ++s, page_.y += kRow + kGap) {
      page_.text(SvgPage::kMargin, page_.y + kRow * 0.65, "ink", fmt::format("stage {}", s));
      page_.rect({kLeft, page_.y, width_, kRow}, "rest");
      for (const ChunkSpan& span : panel.line.stages[s]) step(span, grid);
    }
  }

  void step(const ChunkSpan& span, const TimelineGrid& grid) {
    const ChunkAction& a = span.action;
    const double left = x(span.begin);
    page_.cell({left, page_.y, x(span.end) - left, kRow}, colour(a.step, grid.nth(a.chunk), grid.chunks),
               fmt::format("{}", a.micro),
               fmt::format("{} of micro-batch {}{}: {:.6g} to {:.6g}{}{}", words_of(a.step), a.micro,
                           grid.chunks > 1 ? fmt::format(", chunk {}", a.chunk) : "", span.begin * options_.scale,
                           span.end * options_.scale, options_.unit.empty() ? "" : " ", options_.unit));
  }

  void axis() {
    page_.y += 4;
    const double interval =
        horizon_ > 0 ? round_interval(kMarkPixels / width_ * horizon_ * options_.scale) : 1;  // in units
    for (int i = 0; i == 0 || i * interval <= horizon_ * options_.scale * (1 + 1e-9); ++i) {
      const double at = x(i * interval / options_.scale);
      page_.line(at, page_.y - 4, at, page_.y + 2, "mark");
      page_.text(at, page_.y + 15, "soft mid", fmt::format("{:g}", i * interval));
      if (!(horizon_ > 0)) break;
    }
    page_.text(SvgPage::kMargin, page_.y + 15, "soft", options_.unit.empty() ? "time" : options_.unit);
    page_.y += 22;
  }

  void legend() {
    page_.begin_keys(kLeft);
    for (const ChunkStep step : kChunkSteps) {
      int chunks = 0;
      for (const TimelineGrid& grid : grids_)
        if (grid.has[static_cast<int>(step)]) chunks = std::max(chunks, grid.chunks);
      for (int nth = 0; nth < chunks; ++nth)
        if (nth == 0 || nth == chunks - 1)
          page_.key(colour(step, nth, chunks), nth < chunks - 1 ? "" : std::string(words_of(step)));
    }
    if (std::ranges::any_of(grids_, [](const TimelineGrid& grid) { return grid.chunks > 1; }))
      page_.remark("lighter: a later chunk");
  }

  std::span<const PicturePanel> panels_;
  const SvgPictureOptions& options_;
  std::vector<TimelineGrid> grids_;
  double horizon_ = 0, width_ = 0;
  SvgPage page_;
};

}  // namespace

std::string svg_picture(std::span<const PicturePanel> panels, const SvgPictureOptions& options) {
  return SvgPicture(panels, options).text();
}

}  // namespace lockstep
