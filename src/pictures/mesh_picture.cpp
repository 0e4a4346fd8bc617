#include "pictures/mesh_picture.h"

#include <fmt/format.h>

#include <array>
#include <functional>
#include <map>
#include <vector>

#include "pictures/svg_page.h"

namespace lockstep {

namespace {

constexpr double kCell = 62, kCellHeight = 38, kPad = 8, kLabel = 18, kGroupCell = 24, kGroupHeight = 22;

struct Axis {
  std::string name, what;
  std::string_view fill;
  std::function<std::array<std::int64_t, 3>(std::int64_t)> group;  // what the ranks of one group have in common
};

std::vector<Axis> axes(const LayoutSpec& l) {
  return {
      {"tp", "share every layer: each has a shard of the weights of a block", fills::pink,
       [&l](std::int64_t r) {
         return std::array{l.dp_rank(r), l.stage(r), l.cp_rank(r)};
       }},
      {"cp", "share every sample: each has other tokens of it", fills::purple,
       [&l](std::int64_t r) {
         return std::array{l.dp_rank(r), l.stage(r), l.tp_rank(r)};
       }},
      {"pp", "share the depth of the model: each has other blocks", fills::teal,
       [&l](std::int64_t r) {
         return std::array{l.dp_rank(r), l.cp_rank(r), l.tp_rank(r)};
       }},
      {"dp", "share the batch: each has other samples", fills::orange,
       [&l](std::int64_t r) {
         return std::array{l.stage(r), l.cp_rank(r), l.tp_rank(r)};
       }},
      {"dp × cp", "have the same weights: gradients are summed over them, and ZeRO shards over them", fills::yellow,
       [&l](std::int64_t r) {
         return std::array{l.stage(r), l.tp_rank(r), std::int64_t{0}};
       }},
  };
}

// One data-parallel replica: stages below each other, in each the groups that share a sample side by side.
void draw_replica(SvgPage& page, const LayoutSpec& l, std::int64_t d, const SvgPage::Box& box) {
  page.rect(box, "frame");
  page.text(box.x + kPad, box.y + 15, "ink bold", fmt::format("dp {}", d));
  const double group = kPad + static_cast<double>(l.tp) * kCell + kPad;
  const double stage_height = kLabel + kLabel + kCellHeight + kPad + kPad;
  for (std::int64_t s = 0; s < l.pp; ++s) {
    const double top = box.y + kLabel + kPad + static_cast<double>(s) * (stage_height + kPad);
    page.rect({box.x + kPad, top, box.width - 2 * kPad, stage_height}, "rest");
    page.text(box.x + 2 * kPad, top + 14, "ink", fmt::format("pp {}: stage {}", s, s));
    for (std::int64_t c = 0; c < l.cp; ++c) {
      const double left = box.x + 2 * kPad + static_cast<double>(c) * (group + kPad);
      page.rect({left, top + kLabel, group, kLabel + kCellHeight + kPad}, "frame");
      page.text(left + kPad, top + kLabel + 14, "soft", fmt::format("cp {}", c));
      for (std::int64_t t = 0; t < l.tp; ++t) {
        const std::int64_t rank = ((d * l.pp + s) * l.cp + c) * l.tp + t;
        const SvgPage::Box cell{left + kPad + static_cast<double>(t) * kCell, top + 2 * kLabel, kCell, kCellHeight};
        page.rect(cell, "step", fills::blue,
                  fmt::format("rank {} = (({}·{} + {})·{} + {})·{} + {}", rank, d, l.pp, s, l.cp, c, l.tp, t));
        page.text(cell.x + kCell / 2, cell.y + 16, "in", fmt::format("rank {}", rank));
        page.text(cell.x + kCell / 2, cell.y + 31, "in", fmt::format("tp {}", t));
      }
    }
  }
}

void draw_groups(SvgPage& page, const LayoutSpec& l, const Axis& axis) {
  std::map<std::array<std::int64_t, 3>, std::vector<std::int64_t>> groups;
  for (std::int64_t r = 0; r < l.ranks(); ++r) groups[axis.group(r)].push_back(r);
  page.y += 26;
  page.text(SvgPage::kMargin, page.y, "ink bold", axis.name);
  page.text(SvgPage::kMargin + 60, page.y, "soft", "ranks that " + axis.what);
  page.y += 7;
  double x = SvgPage::kMargin;
  for (const auto& [key, ranks] : groups) {
    for (const std::int64_t rank : ranks) {
      page.cell({x, page.y, kGroupCell, kGroupHeight}, axis.fill, fmt::format("{}", rank));
      x += kGroupCell;
    }
    x += kPad;
  }
  page.y += kGroupHeight;
}

}  // namespace

std::string mesh_picture(const LayoutSpec& l) {
  SvgPage page;
  const double group = static_cast<double>(l.tp) * kCell + 2 * kPad;
  const double width = static_cast<double>(l.cp) * (group + kPad) + 3 * kPad;
  const double height = kLabel + kPad + static_cast<double>(l.pp) * (2 * kLabel + kCellHeight + 3 * kPad);
  page.longest = static_cast<double>(l.dp) * (width + 2 * kPad);
  page.title(fmt::format("The mesh of {}: {} ranks", to_text(l), l.ranks()));
  page.subtitle("rank = ((dp·PP + pp)·CP + cp)·TP + tp, so the ranks of a tp group are neighbours");
  page.y += 12;
  for (std::int64_t d = 0; d < l.dp; ++d)
    draw_replica(page, l, d, {SvgPage::kMargin + static_cast<double>(d) * (width + 2 * kPad), page.y, width, height});
  page.y += height + 4;
  for (const Axis& axis : axes(l)) draw_groups(page, l, axis);
  return page.str();
}

}  // namespace lockstep
