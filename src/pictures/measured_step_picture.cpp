#include "pictures/measured_step_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "pictures/timeline_grid.h"

namespace lockstep {

namespace {

// In pixels.
constexpr double kLeft = 84, kRight = 130, kWidth = 1000, kRow = 20, kGap = 4, kMemory = 220, kMarkPixels = 90;

constexpr std::array<std::string_view, kMeasuredKinds> kColours = {"#6ea8fe", "#5fc982", "#f2b35e", "#4cc9d0",
                                                                   "#d5dbe1"};
constexpr std::string_view kBandColours[] = {"#6ea8fe", "#b4d2ff", "#5fc982", "#f2b35e",
                                             "#f28f8f", "#4cc9d0", "#c3a6f2", "#b8c0c8"};

constexpr std::string_view kStyle =
    "<style>text{font-family:system-ui,sans-serif;font-size:12px}rect{shape-rendering:crispEdges}.paper{fill:#fff}.ink{"
    "fill:#1f2328}"
    ".title{font-size:16px;font-weight:600}.soft{fill:#59636e}.mark{stroke:#d1d9e0}.rest{fill:#f0f2f5}"
    ".held{stroke:#1f2328;stroke-dasharray:5 4}.axis{text-anchor:middle}.end{text-anchor:end}"
    "@media(prefers-color-scheme:dark){.paper{fill:#0d1117}.ink{fill:#f0f6fc}.soft{fill:#9198a1}"
    ".mark{stroke:#3d444d}.rest{fill:#171c23}.held{stroke:#f0f6fc}}</style>\n";

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (c == '&' || c == '<' || c == '>')
      out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : "&gt;";
    else if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7F)
      out += c;
  return out;
}

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
    words(16, y_ += 28, "ink title", picture_.title);
    words(16, y_ += 20, "soft", picture_.subtitle);
    y_ += 14;
    for (std::size_t r = 0; r < picture_.ranks.size(); ++r) row(r);
    kinds();
    words(16, y_ += 34, "ink", fmt::format("memory of rank {}, in use", picture_.memory_rank));
    y_ += 12;
    memory();
    axis();
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
               "{1:.0f}\" role=\"img\">\n{2}<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n",
               kLeft + kWidth + kRight, y_ + 12, kStyle) +
           body_ + "</svg>\n";
  }

 private:
  double x(double time) const { return kLeft + (horizon_ > 0 ? time / horizon_ * kWidth : 0); }
  template <class... Args>
  void print(fmt::format_string<Args...> format, Args&&... arguments) {
    fmt::format_to(std::back_inserter(body_), format, std::forward<Args>(arguments)...);
  }
  void words(double x, double y, std::string_view style, std::string_view text) {
    print("<text class=\"{}\" x=\"{:.6g}\" y=\"{:.6g}\">{}</text>\n", style, x, y, escaped(text));
  }
  void box(double left, double top, double wide, double high, std::string_view fill, std::string_view tip) {
    print("<rect x=\"{:.6g}\" y=\"{:.6g}\" width=\"{:.5g}\" height=\"{:.5g}\" fill=\"{}\"><title>{}</title></rect>\n",
          left, top, wide, high, fill, escaped(tip));
  }

  void row(std::size_t rank) {
    words(16, y_ + kRow * 0.7, "ink", fmt::format("rank {}", rank));
    print("<rect class=\"rest\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n", kLeft, y_, kWidth, kRow);
    for (const MeasuredSpan& span : picture_.ranks[rank])
      box(x(span.begin), y_, x(span.end) - x(span.begin), kRow, kColours[static_cast<std::size_t>(span.kind)],
          fmt::format("{}: {:.3f} to {:.3f} ms", span.what, span.begin * 1e3, span.end * 1e3));
    y_ += kRow + kGap;
  }

  void kinds() {
    y_ += 18;
    double at = kLeft;
    for (int k = 0; k < kMeasuredKinds; ++k) {
      const std::string_view name = name_of(static_cast<MeasuredKind>(k));
      box(at, y_ - 11, 14, 14, kColours[static_cast<std::size_t>(k)], name);
      words(at + 20, y_, "soft", name);
      at += 34 + 7.0 * static_cast<double>(name.size());
    }
  }

  void memory() {
    const double bottom = y_ + kMemory;
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
          box(x(picture_.times[i]), top[i], x(picture_.times[i + 1]) - x(picture_.times[i]), height(bytes[i]),
              kBandColours[b % std::size(kBandColours)], fmt::format("{}: {}", name, mebibytes(bytes[i])));
      }
      if (most == 0) continue;
      // Beside the last moment, the names one above the other.
      name_at = std::min(name_at - 18, bottom - 4);
      box(kLeft + kWidth + 8, name_at - 11, 12, 12, kBandColours[b % std::size(kBandColours)], name);
      words(kLeft + kWidth + 26, name_at, "soft", name);
    }
    const double line = bottom - height(picture_.held);
    print("<line class=\"held\" x1=\"{:.6g}\" x2=\"{:.6g}\" y1=\"{:.6g}\" y2=\"{:.6g}\"/>\n", kLeft, kLeft + kWidth,
          line, line);
    words(kLeft - 8, line + 4, "soft end", mebibytes(picture_.held));
    words(kLeft - 8, bottom, "soft end", "0");
    y_ = bottom;
  }

  void axis() {
    y_ += 4;
    const double interval = horizon_ > 0 ? round_interval(kMarkPixels / kWidth * horizon_ * 1e3) : 1;  // ms
    for (int i = 0; i == 0 || i * interval <= horizon_ * 1e3; ++i) {
      const double at = x(i * interval * 1e-3);
      print("<line class=\"mark\" x1=\"{0:.6g}\" x2=\"{0:.6g}\" y1=\"{1:.6g}\" y2=\"{2:.6g}\"/>\n", at, y_, y_ + 6);
      words(at, y_ + 20, "soft axis", fmt::format("{:g} ms", i * interval));
      if (!(horizon_ > 0)) break;
    }
    y_ += 26;
    words(kLeft, y_ += 14, "soft", "dashed: what the run has taken, once, before its first step");
  }

  const MeasuredStepPicture& picture_;
  double horizon_ = 0, y_ = 0;
  std::int64_t most_ = 0;
  std::string body_;
};

}  // namespace

std::string_view name_of(MeasuredKind kind) {
  constexpr std::array<std::string_view, kMeasuredKinds> kNames = {"forward", "backward", "norm and update", "message",
                                                                   "waiting"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string svg_picture(const MeasuredStepPicture& picture) { return Drawing(picture).text(); }

}  // namespace lockstep
