#include "pictures/bars_picture.h"

#include <algorithm>
#include <string_view>

#include "pictures/svg_page.h"

namespace lockstep {

std::string svg_picture(const BarsPicture& picture) {
  constexpr double kWidth = 560, kRow = 20;
  // Kinds that no row has take neither a colour nor a place in the key.
  std::vector<std::size_t> colour(picture.kinds.size());
  std::vector<bool> used(picture.kinds.size());
  for (const BarsPicture::Row& row : picture.rows)
    for (std::size_t k = 0; k < row.values.size(); ++k) used[k] = used[k] || row.values[k] > 0;
  for (std::size_t k = 0, next = 0; k < used.size(); ++k) colour[k] = used[k] ? next++ : 0;
  const auto fill = [&](std::size_t kind) { return fills::kinds[colour[kind] % std::size(fills::kinds)]; };
  SvgPage page;
  page.caption(picture.title);
  page.begin_keys(SvgPage::kMargin);
  for (std::size_t k = 0; k < picture.kinds.size(); ++k)
    if (used[k]) page.key(fill(k), picture.kinds[k]);
  double most = 0, names = 0;
  for (const BarsPicture::Row& row : picture.rows) {
    double sum = 0;
    for (const double value : row.values) sum += value;
    most = std::max(most, sum);
    names = std::max(names, text_width(row.name, 12));
  }
  double y = page.y + 14;
  for (const BarsPicture::Row& row : picture.rows) {
    page.text(SvgPage::kMargin, y + 14, "ink", row.name);
    double x = SvgPage::kMargin + names + 10;
    for (std::size_t k = 0; k < row.values.size() && most > 0; ++k) {
      const double width = kWidth * row.values[k] / most;
      if (width > 0) page.cell({x, y, width, kRow - 2}, fill(k), "", k < row.tips.size() ? row.tips[k] : std::string());
      x += width;
    }
    y += kRow;
  }
  page.reach(SvgPage::kMargin + names + 10 + kWidth, y);
  return page.str();
}

}  // namespace lockstep
