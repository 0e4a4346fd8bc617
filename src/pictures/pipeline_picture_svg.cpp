// svg_picture.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <utility>

#include "pictures/pipeline_picture.h"
#include "pictures/timeline_grid.h"

namespace lockstep {

namespace {

// In pixels.
constexpr double kLeft = 72, kRight = 24, kRow = 26, kGap = 3, kCaption = 24, kDigit = 6.6, kTitleDigit = 9.2,
                 kWideDigit = 16, kMarkPixels = 60;
constexpr double kNarrowest = 360, kWidest = 1400, kWidthOfStep = 18;

using Rgb = std::array<int, 3>;
constexpr Rgb kColours[] = {{110, 168, 254}, {95, 201, 130}, {76, 201, 208}, {242, 179, 94}};  // by ChunkStep

constexpr std::string_view kStyle =
    "<style>text{font-family:system-ui,sans-serif;font-size:12px}.paper{fill:#fff}.ink{fill:#1f2328}"
    ".title{font-size:16px;font-weight:600}.soft{fill:#59636e}.mark{stroke:#d1d9e0}.rest{fill:#f0f2f5}"
    ".step{stroke:#fff;stroke-width:.7}.in{fill:#10151c;font-size:11px;text-anchor:middle}.axis{text-anchor:middle}"
    "@media(prefers-color-scheme:dark){.paper{fill:#0d1117}.ink{fill:#f0f6fc}.soft{fill:#9198a1}"
    ".mark{stroke:#3d444d}.rest{fill:#171c23}.step{stroke:#0d1117}}</style>\n";

// Characters that XML cannot hold are left out.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7F) out += c;
    }
  return out;
}

// Later chunks are lighter.
std::string colour(ChunkStep step, int nth, int chunks) {
  const double white = chunks == 1 ? 0 : 0.62 * nth / (chunks - 1);
  const auto mixed = [&](int value) { return static_cast<int>(std::lround(value + (255 - value) * white)); };
  const Rgb& c = kColours[static_cast<int>(step)];
  return fmt::format("#{:02x}{:02x}{:02x}", mixed(c[0]), mixed(c[1]), mixed(c[2]));
}

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }  // a UTF-8 character

// As wide as a title may become: fonts differ, and letters that are not ASCII may be twice as wide.
double text_width(std::string_view text) {
  double width = 0;
  for (const char c : text) {
    if (continues(c)) continue;
    const bool wide = static_cast<unsigned char>(c) >= 0x80 || std::string_view("mwMW@%&").find(c) != std::string::npos;
    width += wide ? kWideDigit : kTitleDigit;
  }
  return width;
}

// Where a line of the text that begins there ends: at its end, or at the last blank or comma that leaves it within the
// picture, or within a word that is longer than that.
std::size_t line_end(std::string_view text, std::size_t begin) {
  std::size_t at = begin, good = begin;
  for (double width = 0; at < text.size();) {
    std::size_t next = at + 1;
    while (next < text.size() && continues(text[next])) ++next;
    width += text_width(text.substr(at, next - at));
    if (width > kWidest) return good > begin ? good : at;
    if (text[at] == ' ') good = at;
    if (text[at] == ',') good = next;
    at = next;
  }
  return at;
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
    line(options_.title, "ink title", 28);
    line(options_.subtitle, "soft", 20);
    for (std::size_t i = 0; i < panels_.size(); ++i) draw(panels_[i], grids_[i]);
    axis();
    legend();
    const double w = std::max(kLeft + width_, words_end_) + kRight, h = y_ + 12;
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
               "{1:.0f}\" role=\"img\">\n{2}<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n",
               w, h, kStyle) +
           body_ + "</svg>\n";
  }

 private:
  double x(double time) const { return kLeft + (horizon_ > 0 ? time / horizon_ * width_ : 0); }
  template <class... Args>
  void print(fmt::format_string<Args...> format, Args&&... arguments) {
    fmt::format_to(std::back_inserter(body_), format, std::forward<Args>(arguments)...);
  }
  void words(double x, double y, const char* style, const std::string& text) {
    print("<text class=\"{}\" x=\"{:.5g}\" y=\"{:.5g}\">{}</text>\n", style, x, y, escaped(text));
  }
  // On several lines where it is too long for one: nothing of it is cut off.
  void line(const std::string& text, const char* style, double height) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = line_end(text, at);
      const std::string part = text.substr(at, end - at);
      y_ += height;
      words(16, y_, style, part);
      words_end_ = std::max(words_end_, 16 + text_width(part));
      at = std::min(text.find_first_not_of(' ', end), text.size());
    }
  }

  void draw(const PicturePanel& panel, const TimelineGrid& grid) {
    line(panel.caption, "ink", kCaption);
    y_ += 10;
    for (std::size_t s = 0; s < panel.line.stages.size(); ++s, y_ += kRow + kGap) {
      words(16, y_ + kRow * 0.65, "ink", fmt::format("stage {}", s));
      print("<rect class=\"rest\" x=\"{:.6g}\" y=\"{:.6g}\" width=\"{:.6g}\" height=\"{:.6g}\"/>\n", kLeft, y_, width_,
            kRow);
      for (const ChunkSpan& span : panel.line.stages[s]) step(span, grid);
    }
  }

  void step(const ChunkSpan& span, const TimelineGrid& grid) {
    const ChunkAction& a = span.action;
    const double left = x(span.begin), wide = x(span.end) - left;
    print("<rect class=\"step\" x=\"{:.6g}\" y=\"{:.6g}\" width=\"{:.6g}\" height=\"{:.6g}\" fill=\"{}\">", left, y_,
          wide, kRow, colour(a.step, grid.nth(a.chunk), grid.chunks));
    print("<title>{} of micro-batch {}{}: {:.6g} to {:.6g}{}</title></rect>\n", words_of(a.step), a.micro,
          grid.chunks > 1 ? fmt::format(", chunk {}", a.chunk) : "", span.begin * options_.scale,
          span.end * options_.scale, unit());
    const std::string number = fmt::format("{}", a.micro);
    if (wide >= kDigit * static_cast<double>(number.size()) + 3) words(left + wide / 2, y_ + kRow * 0.65, "in", number);
  }

  std::string unit() const { return fmt::format("{}{}", options_.unit.empty() ? "" : " ", escaped(options_.unit)); }

  void axis() {
    y_ += 4;
    const double interval =
        horizon_ > 0 ? round_interval(kMarkPixels / width_ * horizon_ * options_.scale) : 1;  // in units
    for (int i = 0; i == 0 || i * interval <= horizon_ * options_.scale * (1 + 1e-9); ++i) {
      const double at = x(i * interval / options_.scale);
      print("<line class=\"mark\" x1=\"{0:.6g}\" x2=\"{0:.6g}\" y1=\"{1:.6g}\" y2=\"{2:.6g}\"/>\n", at, y_ - 4, y_ + 2);
      words(at, y_ + 15, "soft axis", fmt::format("{:g}", i * interval));
      if (!(horizon_ > 0)) break;
    }
    words(16, y_ + 15, "soft", options_.unit.empty() ? "time" : options_.unit);
    y_ += 22;
  }

  void legend() {
    y_ += 18;
    double at = kLeft;
    const auto key = [&](const std::string& fill, const std::string& text) {
      print("<rect class=\"key\" x=\"{:.6g}\" y=\"{:.6g}\" width=\"14\" height=\"14\" fill=\"{}\"/>\n", at, y_ - 11,
            fill);
      at += 14 + (text.empty() ? 2 : 6);
      if (text.empty()) return;
      words(at, y_, "soft", text);
      at += kDigit * static_cast<double>(text.size()) + 14;
    };
    for (const ChunkStep step : kChunkSteps) {
      int chunks = 0;
      for (const TimelineGrid& grid : grids_)
        if (grid.has[static_cast<int>(step)]) chunks = std::max(chunks, grid.chunks);
      for (int nth = 0; nth < chunks; ++nth)
        if (nth == 0 || nth == chunks - 1)
          key(colour(step, nth, chunks), nth < chunks - 1 ? "" : std::string(words_of(step)));
    }
    if (std::ranges::any_of(grids_, [](const TimelineGrid& grid) { return grid.chunks > 1; }))
      words(std::exchange(at, at + 140), y_, "soft", "lighter: a later chunk");
    words_end_ = std::max(words_end_, at);
  }

  std::span<const PicturePanel> panels_;
  const SvgPictureOptions& options_;
  std::vector<TimelineGrid> grids_;
  double horizon_ = 0, width_ = 0, y_ = 0, words_end_ = 0;
  std::string body_;
};

}  // namespace

std::string svg_picture(std::span<const PicturePanel> panels, const SvgPictureOptions& options) {
  return SvgPicture(panels, options).text();
}

}  // namespace lockstep
