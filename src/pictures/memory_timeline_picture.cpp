#include "pictures/memory_timeline_picture.h"

#include <fmt/format.h>

#include <algorithm>

#include "pictures/memory_picture.h"
#include "pictures/svg_page.h"

namespace lockstep {

namespace {

constexpr double kWidth = 780, kHeight = 260, kLeft = 90, kStrip = 22, kBar = 20, kBarGap = 5, kLongestBar = 380;
constexpr std::size_t kMostColumns = 780;  // one pixel each

constexpr std::string_view kBandFills[] = {fills::blue,   fills::teal, fills::green, fills::purple,
                                           fills::orange, fills::pink, fills::grey,  fills::yellow};

std::string_view fill_of(std::size_t band) { return kBandFills[band % std::size(kBandFills)]; }

std::string_view fill_of(MemoryPhase::Kind kind) {
  return kind == MemoryPhase::Kind::forward    ? fills::blue
         : kind == MemoryPhase::Kind::backward ? fills::green
                                               : fills::orange;
}

class MemoryTimelineDrawing {
 public:
  explicit MemoryTimelineDrawing(const MemoryTimelinePicture& picture) : picture_(picture) {
    const std::size_t actions = picture.actions.size(), columns = std::min(actions, kMostColumns);
    for (std::size_t c = 0; c < columns; ++c) {  // of many actions, a column shows its fullest
      const std::size_t first = c * actions / columns, end = (c + 1) * actions / columns;
      std::size_t fullest = first;
      for (std::size_t i = first; i < end; ++i)
        if (in_use(i) > in_use(fullest)) fullest = i;
      shown_.push_back(fullest);
    }
    for (const std::int64_t bytes : picture.held) most_ = std::max(most_, bytes);
  }

  std::string text() {
    page_.longest = kLeft + kWidth;
    page_.title(picture_.title);
    page_.subtitle(picture_.subtitle);
    page_.y += 8;
    page_.begin_keys(SvgPage::kMargin);
    for (std::size_t b = 0; b < picture_.bands.size(); ++b)
      if (std::ranges::any_of(picture_.bands[b].bytes, [](std::int64_t bytes) { return bytes > 0; }))
        page_.key(fill_of(b), picture_.bands[b].name);
    page_.remark("pale: held, not in use");
    page_.y += 16;
    draw_phases();
    draw_bytes();
    draw_peak();
    draw_tensors();
    return page_.str();
  }

 private:
  std::int64_t in_use(std::size_t action) const {
    std::int64_t sum = 0;
    for (const auto& band : picture_.bands) sum += band.bytes[action];
    return sum;
  }
  double x(std::size_t action) const {
    return kLeft + kWidth * static_cast<double>(action) / static_cast<double>(picture_.actions.size());
  }
  double column(std::size_t c) const {
    return kLeft + kWidth * static_cast<double>(c) / static_cast<double>(shown_.size());
  }
  double pixels(std::int64_t bytes) const {
    return static_cast<double>(bytes) / static_cast<double>(std::max<std::int64_t>(most_, 1)) * kHeight;
  }

  void draw_phases() {
    for (const MemoryPhase& phase : picture_.phases)
      page_.cell({x(phase.first), page_.y, x(phase.last + 1) - x(phase.first), kStrip}, fill_of(phase.kind), phase.name,
                 fmt::format("{}: {} actions", phase.name, phase.last - phase.first + 1));
    page_.y += kStrip + 6;
  }

  // Columns beside each other that are alike are one rectangle.
  void draw_bytes() {
    const double bottom = page_.y + kHeight;
    page_.rect({kLeft, bottom - pixels(most_), kWidth, pixels(most_)}, "rest");
    std::vector<std::int64_t> below(shown_.size(), 0);
    for (std::size_t b = 0; b < picture_.bands.size(); ++b) {
      const auto& [name, bytes] = picture_.bands[b];
      for (std::size_t c = 0; c < shown_.size();) {
        std::size_t end = c + 1;
        while (end < shown_.size() && bytes[shown_[end]] == bytes[shown_[c]] && below[end] == below[c]) ++end;
        const std::int64_t here = bytes[shown_[c]];
        if (here > 0)
          page_.rect({column(c), bottom - pixels(below[c] + here), column(end) - column(c), pixels(here)}, "bytes",
                     fill_of(b),
                     fmt::format("{}: {} = {} bytes{}", name, short_bytes(here), here,
                                 end - c == 1 ? " at " + picture_.actions[shown_[c]] : ""));
        c = end;
      }
      for (std::size_t c = 0; c < shown_.size(); ++c) below[c] += bytes[shown_[c]];
    }
    page_.text(kLeft - 8, bottom - kHeight + 9, "soft end", short_bytes(most_));
    page_.text(kLeft - 8, bottom, "soft end", "0");
    page_.y = bottom;
  }

  void draw_peak() {
    const double at = (x(picture_.peak) + x(picture_.peak + 1)) / 2, top = page_.y - kHeight;
    page_.line(at, top - 4, at, page_.y + 8, "wire");
    const std::string text =
        fmt::format("{} in use at {}", short_bytes(in_use(picture_.peak)), picture_.actions[picture_.peak]);
    const double half = text_width(text, 12) / 2;
    page_.text(std::clamp(at, SvgPage::kMargin + half, std::max(SvgPage::kMargin + half, kLeft + kWidth - half)),
               page_.y + 22, "ink bold mid", text);
    page_.y += 34;
  }

  void draw_tensors() {
    if (picture_.tensors.empty()) return;
    page_.caption("The largest of what is in use then");
    page_.y += 8;
    double label = 0;
    std::int64_t largest = 1;
    for (const auto& tensor : picture_.tensors) {
      label = std::max(label, text_width(tensor.what, 12));
      largest = std::max(largest, tensor.bytes);
    }
    const double left = SvgPage::kMargin + label + 10;
    for (const auto& [what, band, bytes] : picture_.tensors) {
      const double wide = kLongestBar * static_cast<double>(bytes) / static_cast<double>(largest);
      page_.text(left - 10, page_.y + kBar * 0.7, "ink end", what);
      page_.rect({left, page_.y, wide, kBar}, "step", fill_of(band),
                 fmt::format("{}, {}: {} bytes", picture_.bands[band].name, what, bytes));
      page_.text(left + wide + 8, page_.y + kBar * 0.7, "soft", short_bytes(bytes));
      page_.y += kBar + kBarGap;
    }
  }

  const MemoryTimelinePicture& picture_;
  SvgPage page_;
  std::vector<std::size_t> shown_;  // by column: an action
  std::int64_t most_ = 0;
};

}  // namespace

std::string memory_timeline_picture(const MemoryTimelinePicture& picture) {
  return MemoryTimelineDrawing(picture).text();
}

}  // namespace lockstep
