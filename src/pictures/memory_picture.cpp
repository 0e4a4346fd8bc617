#include "pictures/memory_picture.h"

#include <fmt/format.h>

#include <algorithm>

#include "pictures/svg_page.h"

namespace lockstep {

namespace {

constexpr double kWidth = 560, kBar = 24, kGap = 8;

// By the place of a tag in the bars.
constexpr std::string_view kFills[] = {fills::blue,   fills::teal, fills::green, fills::purple,
                                       fills::orange, fills::pink, fills::grey,  fills::yellow};

}  // namespace

std::int64_t MemoryBar::total() const {
  std::int64_t sum = 0;
  for (const auto& [tag, bytes] : parts) sum += bytes;
  return sum;
}

std::string short_bytes(std::int64_t bytes) {
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  const int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", value, decimals, kUnits[unit]);
}

std::string memory_picture(std::span<const MemoryBar> bars, const MemoryPictureOptions& options) {
  SvgPage page;
  double label = 0;
  std::int64_t most = std::max<std::int64_t>(options.limit, 1);
  for (const MemoryBar& bar : bars) {
    label = std::max(label, text_width(bar.label, 12));
    most = std::max(most, bar.total());
  }
  const double left = SvgPage::kMargin + label + 10;
  const auto pixels = [&](std::int64_t bytes) {
    return static_cast<double>(bytes) / static_cast<double>(most) * kWidth;
  };
  page.longest = left + kWidth + 60;
  page.title(options.title);
  page.subtitle(options.subtitle);
  page.y += 8;
  page.begin_keys(SvgPage::kMargin);
  for (std::size_t i = 0; !bars.empty() && i < bars[0].parts.size(); ++i)
    if (std::ranges::any_of(bars, [&](const MemoryBar& bar) { return bar.parts[i].second > 0; }))
      page.key(kFills[i % std::size(kFills)], bars[0].parts[i].first);
  page.y += options.limit > 0 ? 34 : 18;
  if (options.limit > 0) {
    const double x = left + pixels(options.limit);
    page.line(x, page.y - 6, x, page.y + (kBar + kGap) * static_cast<double>(bars.size()), "wire");
    page.text(x, page.y - 10, "soft mid", options.limit_label);
  }
  for (const MemoryBar& bar : bars) {
    page.text(left - 10, page.y + kBar * 0.67, "ink end", bar.label);
    double x = left;
    for (std::size_t i = 0; i < bar.parts.size(); ++i) {
      const auto& [tag, bytes] = bar.parts[i];
      if (bytes == 0) continue;
      page.cell({x, page.y, pixels(bytes), kBar}, kFills[i % std::size(kFills)], short_bytes(bytes),
                fmt::format("{}: {} = {} bytes", tag, short_bytes(bytes), bytes));
      x += pixels(bytes);
    }
    page.text(left + kWidth + 76, page.y + kBar * 0.67, "ink bold end", short_bytes(bar.total()));
    page.y += kBar + kGap;
  }
  return page.str();
}

}  // namespace lockstep
