#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/plan_machine.h"
#include "cli/plan_sweep.h"
#include "cli/text_table.h"
#include "pictures/line_plot.h"
#include "spec/text/quantity.h"
#include "telemetry/number_text.h"

namespace lockstep {

namespace {

// Values of a setting as places on an axis.
struct SweptAxis {
  PlotAxis axis;
  std::vector<double> places;  // by row
};

constexpr double kWideRange = 8;  // between the least and the greatest value: then the axis is logarithmic

SweptAxis swept_axis(const Sweep& sweep) {
  struct Kind {
    QuantityKind kind;
    PlotAxis::Unit unit;
    double scale;
    const char* name;
  };
  for (const Kind& k : {Kind{QuantityKind::plain, PlotAxis::Unit::number, 1, ""},
                        Kind{QuantityKind::rate, PlotAxis::Unit::number, 1e9, " (GB/s)"},
                        Kind{QuantityKind::operations, PlotAxis::Unit::number, 1e12, " (TFLOP/s)"},
                        Kind{QuantityKind::size, PlotAxis::Unit::bytes, 1, ""},
                        Kind{QuantityKind::time, PlotAxis::Unit::seconds, 1, ""}}) {
    SweptAxis swept{.axis = {.name = sweep.key + k.name, .unit = k.unit}, .places = {}};
    for (const SweepRow& row : sweep.rows)
      if (const auto value = parse_quantity(row.value, k.kind)) swept.places.push_back(*value / k.scale);
    if (swept.places.size() < sweep.rows.size()) continue;
    const auto [least, most] = std::ranges::minmax(swept.places);
    if (least > 0 && most / least >= kWideRange)
      swept.axis.scale =
          std::ranges::all_of(swept.places, [](double v) { return std::log2(v) == std::floor(std::log2(v)); })
              ? PlotAxis::Scale::log2
              : PlotAxis::Scale::log;
    return swept;
  }
  SweptAxis swept{.axis = {.name = sweep.key + ":"}, .places = {}};
  for (std::size_t i = 0; i < sweep.rows.size(); ++i) {
    swept.places.push_back(static_cast<double>(i + 1));
    swept.axis.name += fmt::format(" {} {}{}", i + 1, sweep.rows[i].value, i + 1 < sweep.rows.size() ? "," : "");
  }
  return swept;
}

// A line through the rows that `of` chooses, with `y` of each.
template <class Of, class Y>
LinePlot::Series swept_series(const std::string& name, const Sweep& sweep, const SweptAxis& axis, Of&& of, Y&& y) {
  LinePlot::Series series{.name = name, .points = {}, .dots = true};
  for (std::size_t i = 0; i < sweep.rows.size(); ++i)
    if (sweep.rows[i].impossible.empty() && of(sweep.rows[i]))
      series.points.emplace_back(axis.places[i], y(sweep.rows[i]));
  return series;
}

std::string swept_title(const Sweep& sweep) {
  const SweepRow& row = *std::ranges::find_if(sweep.rows, [](const SweepRow& r) { return r.impossible.empty(); });
  return fmt::format("{} on {}", to_text(row.spec.layout), row.machine.name);
}

std::string scaling_svg(const Sweep& sweep) {
  const SweptAxis axis = swept_axis(sweep);
  PlotAxis x = axis.axis, y{.name = "tokens per second", .scale = x.scale};
  x.name = "nodes";
  if (y.scale == PlotAxis::Scale::log2) y.scale = PlotAxis::Scale::log;
  LinePlot rates{.title = fmt::format("Scaling: {}", swept_title(sweep)),
                 .subtitle =
                     "Strong: the global batch stays. Weak: it grows with the nodes. Ideal: from the first row "
                     "on, as many times the tokens per second as nodes.",
                 .x = x,
                 .y = y};
  LinePlot shares{.x = x, .y = {.name = "efficiency", .unit = PlotAxis::Unit::share, .from_zero = true}};
  for (const Scaling way : {Scaling::strong, Scaling::weak}) {
    const auto of = [&](const SweepRow& row) { return row.scaling == way; };
    LinePlot::Series line = swept_series(std::string(name_of(way)), sweep, axis, of,
                                         [](const SweepRow& row) { return row.predicted.tokens_per_second; });
    if (line.points.empty()) continue;
    const auto [first, rate] = line.points.front();
    LinePlot::Series ideal{.name = fmt::format("ideal, {}", name_of(way)), .points = {}, .dashed = true};
    for (const auto& [nodes, unused] : line.points) ideal.points.emplace_back(nodes, rate * nodes / first);
    rates.series.push_back(std::move(line));
    rates.series.push_back(std::move(ideal));
    shares.series.push_back(
        swept_series(std::string(name_of(way)), sweep, axis, of, [](const SweepRow& row) { return *row.efficiency; }));
  }
  return svg_panels({rates, shares});
}

}  // namespace

std::string sweep_table(const Sweep& sweep) {
  TextTable table{.title = "",
                  .heads = {sweep.key, "scaling", "ranks", "batch", "step", "tokens/s", "MFU", "dp", "pp", "cp", "tp",
                            "bubble", "memory", "fits", "efficiency"},
                  .rows = {}};
  std::string reasons;
  for (const SweepRow& row : sweep.rows) {
    const std::string way = row.scaling ? std::string(name_of(*row.scaling)) : "";
    if (!row.impossible.empty()) {
      reasons += fmt::format("{}{}: impossible: {}\n", row.value, way.empty() ? "" : ", " + way, row.impossible);
      continue;
    }
    std::vector<std::string> cells{row.value,
                                   way,
                                   grouped_digits(row.spec.layout.ranks()),
                                   grouped_digits(row.spec.train.global_batch),
                                   seconds_text(row.predicted.step_seconds),
                                   count_text(row.predicted.tokens_per_second),
                                   fmt::format("{:.1f} %", 100 * row.predicted.mfu)};
    for (const MeshAxis axis : kMeshAxes) {
      const double waited = row.predicted.exposed[static_cast<std::size_t>(axis)];
      cells.push_back(waited > 0 ? seconds_text(waited) : "");
    }
    cells.push_back(row.predicted.bubble ? fmt::format("{:.1f} %", 100 * *row.predicted.bubble) : "");
    cells.push_back(byte_text(row.fullest.peak));
    cells.push_back(row.fits ? "yes" : "no");
    cells.push_back(row.efficiency ? fmt::format("{:.1f} %", 100 * *row.efficiency) : "");
    table.rows.push_back(std::move(cells));
  }
  table.drop_empty_columns();
  return table.plain() + "dp, pp, cp, tp: seconds of a step in waits for messages along that axis\n" + reasons;
}

nlohmann::ordered_json sweep_json(const Sweep& sweep) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const SweepRow& row : sweep.rows) {
    nlohmann::ordered_json json{{"key", sweep.key}, {"value", row.value}};
    if (row.scaling) json["scaling"] = name_of(*row.scaling);
    if (!row.impossible.empty()) {
      json["impossible"] = row.impossible;
    } else {
      json["nodes"] = row.machine.nodes;
      json["ranks"] = row.spec.layout.ranks();
      json["layout"] = to_text(row.spec.layout);
      json["global_batch"] = row.spec.train.global_batch;
      json.update(prediction_json(row.machine, row.predicted, row.fullest.peak));
      json["fits"] = row.fits;
      if (row.efficiency) json["efficiency"] = *row.efficiency;
    }
    all.push_back(std::move(json));
  }
  return all;
}

std::string sweep_svg(const Sweep& sweep) {
  if (sweep.rows.front().scaling) return scaling_svg(sweep);
  const SweptAxis axis = swept_axis(sweep);
  const auto all = [](const SweepRow&) { return true; };
  const auto seconds = [](const SweepRow& row) { return row.predicted.step_seconds; };
  LinePlot time{.title = fmt::format("What if: {}", sweep.key),
                .subtitle = fmt::format("{}. Step time, what of it is computing, and memory of the fullest rank.",
                                        swept_title(sweep)),
                .x = axis.axis,
                .y = {.name = "step time", .unit = PlotAxis::Unit::seconds, .from_zero = true},
                .series = {swept_series("step", sweep, axis, all, seconds),
                           swept_series("computing", sweep, axis, all,
                                        [](const SweepRow& row) { return row.predicted.computed; })}};
  LinePlot memory{.x = axis.axis,
                  .y = {.name = "memory", .unit = PlotAxis::Unit::bytes, .from_zero = true},
                  .series = {swept_series("fullest rank", sweep, axis, all,
                                          [](const SweepRow& row) { return static_cast<double>(row.fullest.peak); })}};
  const auto has = [](const SweepRow& row) { return row.machine.memory > 0; };
  LinePlot::Series room = swept_series("a device has", sweep, axis, has,
                                       [](const SweepRow& row) { return static_cast<double>(row.machine.memory); });
  room.dots = false;
  room.dashed = true;
  if (!room.points.empty()) memory.series.push_back(std::move(room));
  return svg_panels({time, memory});
}

}  // namespace lockstep
