#include "pictures/measured_step_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "pictures/svg_page.h"
#include "pictures/timeline_grid.h"

namespace lockstep {

namespace {

// In pixels.
constexpr double kLeft = 84, kRight = 130, kWidth = 1000, kRow = 20, kGap = 4, kMemory = 220, kMarkPixels = 90;

constexpr std::array<std::string_view, kMeasuredKinds> kColours = {fills::blue, fills::green, fills::orange,
                                                                   fills::teal, "#d5dbe1"};
constexpr std::string_view kBandColours[] = {fills::blue, "#b4d2ff",   fills::green, fills::orange,
                                             "#f28f8f",   fills::teal, "#c3a6f2",    "#b8c0c8"};

std::string mebibytes(std::int64_t bytes) { return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / 0x1p20); }

class Drawing {
 public:
  explicit Drawing(const MeasuredStepPicture& picture) : picture_(picture) {
    for (const auto& rank : picture.ranks)
      for (const MeasuredSpan& span : rank) horizon_ = std::max(horizon_, span.end);
    most_ = picture.held;
    for (std::size_t i = 0; i + 1 < picture.times.size(); ++i) {
      std::int64_t sum = 0;
      for (const auto& band : picture.bands) sum += band.bytes[i];
      most_ = std::max(most_, sum);
    }
  }

  std::string text() {
    page_.add_style(".span{shape-rendering:crispEdges}.held{stroke:#1f2328;stroke-dasharray:5 4}",
                    ".held{stroke:#f0f6fc}");
    page_.longest = kLeft + kWidth + kRight;
    page_.title(picture_.title);
    page_.subtitle(picture_.subtitle);
    page_.y += 14;
    for (std::size_t r = 0; r < picture_.ranks.size(); ++r) row(r);
    page_.begin_keys(kLeft);
    for (int k = 0; k < kMeasuredKinds; ++k)
      page_.key(kColours[static_cast<std::size_t>(k)], name_of(static_cast<MeasuredKind>(k)));
    page_.text(SvgPage::kMargin, page_.y += 34, "ink", fmt::format("memory of rank {}, in use", picture_.memory_rank));
    page_.y += 12;
    memory();
    axis();
    return page_.str();
  }

 private:
  double x(double time) const { return kLeft + (horizon_ > 0 ? time / horizon_ * kWidth : 0); }
  void box(const SvgPage::Box& box, std::string_view fill, std::string_view tip) { page_.rect(box, "span", fill, tip); }

  void row(std::size_t rank) {
    page_.text(SvgPage::kMargin, page_.y + kRow * 0.7, "ink", fmt::format("rank {}", rank));
    page_.rect({kLeft, page_.y, kWidth, kRow}, "rest");
    for (const MeasuredSpan& span : picture_.ranks[rank])
      box({x(span.begin), page_.y, x(span.end) - x(span.begin), kRow}, kColours[static_cast<std::size_t>(span.kind)],
          fmt::format("{}: {:.3f} to {:.3f} ms", span.what, span.begin * 1e3, span.end * 1e3));
    page_.y += kRow + kGap;
  }

  void memory() {
    const double bottom = page_.y + kMemory;
    const auto height = [&](std::int64_t bytes) {
      return most_ > 0 ? static_cast<double>(bytes) / static_cast<double>(most_) * kMemory : 0;
    };
    std::vector<double> top(picture_.times.empty() ? 0 : picture_.times.size() - 1, bottom);
    double name_at = bottom + 100;
    for (std::size_t b = 0; b < picture_.bands.size(); ++b) {
      const auto& [name, bytes] = picture_.bands[b];
      std::int64_t most = 0;
      for (std::size_t i = 0; i < top.size(); ++i) {
        most = std::max(most, bytes[i]);
        top[i] -= height(bytes[i]);
        if (bytes[i] > 0)
          box({x(picture_.times[i]), top[i], x(picture_.times[i + 1]) - x(picture_.times[i]), height(bytes[i])},
              kBandColours[b % std::size(kBandColours)], fmt::format("{}: {}", name, mebibytes(bytes[i])));
      }
      if (most == 0) continue;
      // Beside the last moment, the names one above the other.
      name_at = std::min(name_at - 18, bottom - 4);
      box({kLeft + kWidth + 8, name_at - 11, 12, 12}, kBandColours[b % std::size(kBandColours)], name);
      page_.text(kLeft + kWidth + 26, name_at, "soft", name);
    }
    const double line = bottom - height(picture_.held);
    page_.line(kLeft, line, kLeft + kWidth, line, "held");
    page_.text(kLeft - 8, line + 4, "soft end", mebibytes(picture_.held));
    page_.text(kLeft - 8, bottom, "soft end", "0");
    page_.y = bottom;
  }

  void axis() {
    page_.y += 4;
    const double interval = horizon_ > 0 ? round_interval(kMarkPixels / kWidth * horizon_ * 1e3) : 1;  // ms
    for (int i = 0; i == 0 || i * interval <= horizon_ * 1e3; ++i) {
      const double at = x(i * interval * 1e-3);
      page_.line(at, page_.y, at, page_.y + 6, "mark");
      page_.text(at, page_.y + 20, "soft mid", fmt::format("{:g} ms", i * interval));
      if (!(horizon_ > 0)) break;
    }
    page_.y += 26;
    page_.text(kLeft, page_.y += 14, "soft", "dashed: what the run has taken, once, before its first step");
  }

  const MeasuredStepPicture& picture_;
  double horizon_ = 0;
  std::int64_t most_ = 0;
  SvgPage page_;
};

}  // namespace

std::string_view name_of(MeasuredKind kind) {
  constexpr std::array<std::string_view, kMeasuredKinds> kNames = {"forward", "backward", "norm and update", "message",
                                                                   "waiting"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string svg_picture(const MeasuredStepPicture& picture) { return Drawing(picture).text(); }

}  // namespace lockstep
