#include "pictures/zero_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "pictures/memory_picture.h"
#include "pictures/svg_page.h"
#include "spec/layout/shard.h"
#include "spec/step/laid_out_step.h"

namespace lockstep {

namespace {

constexpr double kLeft = 106, kColumn = 25, kRow = 17, kWeights = 11, kChart = 64;

char letter_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
      return 'F';
    case ActionKind::backward_input:
      return 'I';
    case ActionKind::backward_weight:
      return 'W';
    case ActionKind::norm:
      return 'N';
    default:
      return 'U';
  }
}

bool is_moment(ActionKind kind) { return is_phase(kind) || kind == ActionKind::norm || kind == ActionKind::update; }

constexpr std::string_view kWhat[] = {"every rank holds everything", "optimizer state is sharded",
                                      "optimizer state and gradients are sharded",
                                      "optimizer state, gradients and weights are sharded"};

// One stage of ZeRO: a row per unit above, bytes below.
void draw_stage(SvgPage& page, std::span<const ResidentUnit> units, const std::vector<ResidencyMoment>& moments,
                std::int64_t zero, std::int64_t scale) {
  std::int64_t peak = 0;
  for (const ResidencyMoment& m : moments) peak = std::max(peak, m.total());
  page.caption(fmt::format("zero = {}: {}; at most {}", zero, kWhat[zero], short_bytes(peak)));
  page.y += 8;
  const double top = page.y;
  for (std::size_t u = 0; u < units.size(); ++u) {
    const double y = top + static_cast<double>(u) * kRow;
    page.text(kLeft - 8, y + 11, "ink small end", units[u].name);
    for (std::size_t i = 0; i < moments.size(); ++i) {
      const ResidencyMoment& m = moments[i];
      const double x = kLeft + static_cast<double>(i) * kColumn;
      const std::string when = fmt::format("{} at {}", units[u].name, to_string(m.action));
      page.rect({x, y, kColumn, kRow - 1}, "rest");
      if (m.weights[u]) page.rect({x, y, kColumn, kWeights}, "step weights", fills::blue, when + ": weights are whole");
      if (m.gradients[u])
        page.rect({x, y + kWeights, kColumn, kRow - 1 - kWeights}, "step gradients", fills::orange,
                  when + ": its gradient is whole");
      if (m.action.unit == static_cast<int>(u) || m.action.kind == ActionKind::norm)
        page.text(x + kColumn / 2, y + 9.5, m.weights[u] ? "in" : "soft small mid",
                  std::string(1, letter_of(m.action.kind)));
    }
  }
  const double base = top + static_cast<double>(units.size()) * kRow + 8 + kChart;
  const auto pixels = [&](std::int64_t bytes) {
    return static_cast<double>(bytes) / static_cast<double>(scale) * kChart;
  };
  page.text(kLeft - 8, base - kChart + 9, "soft small end", short_bytes(scale));
  page.text(kLeft - 8, base, "soft small end", "0");
  page.rect({kLeft, base - kChart, kColumn * static_cast<double>(moments.size()), kChart}, "rest");
  for (std::size_t i = 0; i < moments.size(); ++i) {
    const ResidencyMoment& m = moments[i];
    double y = base;
    const auto bar = [&](std::int64_t bytes, std::string_view fill, std::string_view what) {
      if (bytes == 0) return;
      y -= pixels(bytes);
      page.rect({kLeft + static_cast<double>(i) * kColumn, y, kColumn, pixels(bytes)}, "bytes", fill,
                fmt::format("{} at {}: {}", what, to_string(m.action), short_bytes(bytes)));
    };
    bar(m.optimizer, fills::purple, "optimizer state");
    bar(m.gradient + m.summed, fills::orange, "gradients");
    bar(m.parameters + m.gathered, fills::blue, "weights");
  }
  page.y = base;
}

}  // namespace

std::vector<ResidencyMoment> residency(std::span<const ResidentUnit> units, const LayoutSpec& layout,
                                       const StateBytes& bytes) {
  const Shard shard{.index = 0, .count = layout.shards()};
  std::vector<std::int64_t> whole_bytes;
  for (const ResidentUnit& unit : units) whole_bytes.push_back(shard.padded(unit.elements) * bytes.weight);
  const StepShape shape = laid_out({.units = static_cast<int>(units.size()), .micro = static_cast<int>(layout.micro)},
                                   layout, {.unit_bytes = whole_bytes});
  const bool shards_gradients = layout.passes_on() && shard.count > 1;
  std::vector<bool> weights(units.size(), !shape.gathers), gradients(units.size(), !shards_gradients);
  std::deque<std::size_t> sums;  // units whose whole gradients exist, the oldest first
  std::vector<ResidencyMoment> moments;
  for (const Action& action : serial_step(shape)) {
    const auto u = static_cast<std::size_t>(std::max(action.unit, 0));
    if (action.kind == ActionKind::gather) weights[u] = true;
    if (action.kind == ActionKind::release) weights[u] = false;
    const bool writes = action.kind == ActionKind::backward_weight ||
                        (action.kind == ActionKind::forward && action.unit == shape.last());
    if (shards_gradients && writes && !gradients[u]) {
      if (sums.size() == 2) gradients[sums.front()] = false, sums.pop_front();
      gradients[u] = true;
      sums.push_back(u);
    }
    if (shards_gradients && action.kind == ActionKind::norm) {
      gradients.assign(units.size(), false);
      sums.clear();
    }
    if (!is_moment(action.kind)) continue;
    ResidencyMoment& m =
        moments.emplace_back(ResidencyMoment{.action = action, .weights = weights, .gradients = gradients});
    for (std::size_t v = 0; v < units.size(); ++v) {
      const std::int64_t part = shard.elements(units[v].elements), all = shard.padded(units[v].elements);
      m.parameters += bytes.weight * (shape.gathers ? part : all);
      m.gathered += shape.gathers && weights[v] ? bytes.weight * all : 0;
      m.gradient += bytes.gradient * (shards_gradients ? part : all);
      m.summed += shards_gradients && gradients[v] ? bytes.gradient * all : 0;
      m.optimizer += bytes.optimizer * part;
    }
  }
  return moments;
}

std::string zero_picture(std::span<const ResidentUnit> units, std::int64_t ranks, const std::string& model) {
  SvgPage page;
  std::vector<std::vector<ResidencyMoment>> stages;
  std::int64_t scale = 0;
  for (std::int64_t zero = 0; zero <= 3; ++zero) {
    LayoutSpec layout{.dp = ranks, .zero = zero};
    layout.grad_sync = LayoutSpec::usual_sync(zero);
    stages.push_back(residency(units, layout, {}));
    for (const ResidencyMoment& m : stages.back()) scale = std::max(scale, m.total());
  }
  page.longest = kLeft + kColumn * static_cast<double>(stages[0].size()) - SvgPage::kMargin;
  page.title(fmt::format("ZeRO over {} ranks: what one rank holds during a step", ranks));
  page.subtitle(
      fmt::format("{}; bf16 weights, fp32 gradients, master weights and moments: 18 bytes per parameter. "
                  "F forward, I backward (inputs), W backward (weights), N norm, U update.",
                  model));
  page.y += 6;
  page.begin_keys(SvgPage::kMargin);
  page.key(fills::blue, "weights of the unit are whole");
  page.key(fills::orange, "its gradient is whole");
  page.key(fills::purple, "optimizer state (bytes)");
  page.remark("else: one shard");
  for (std::int64_t zero = 0; zero <= 3; ++zero)
    draw_stage(page, units, stages[static_cast<std::size_t>(zero)], zero, scale);
  return page.str();
}

}  // namespace lockstep
