#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/report_text.h"
#include "pictures/bars_picture.h"
#include "pictures/curve_picture.h"
#include "pictures/svg_page.h"
#include "telemetry/number_text.h"

namespace lockstep {

namespace {

constexpr std::size_t kMostBars = 64;  // ranks that are drawn

// Nothing is loaded and nothing runs, whatever a run folder holds.
constexpr std::string_view kHead =
    "<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
    "style-src 'unsafe-inline'\">\n<meta name=\"viewport\" content=\"width=device-width\">\n"
    "<style>body{font-family:system-ui,'DejaVu Sans',sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "background:#fff;color:#1f2328}td,th{text-align:left;padding:.15rem 1rem .15rem 0;vertical-align:top;"
    "font-weight:normal}th{color:#59636e}td{white-space:pre-wrap}svg{max-width:100%;height:auto}"
    "@media(prefers-color-scheme:dark){body{background:#0d1117;color:#f0f6fc}th{color:#9198a1}}</style>\n";

template <class Value>
CurvePicture::Curve curve_of(const RunRecords& run, const char* name, const Value& value) {
  CurvePicture::Curve curve{.name = name, .points = {}};
  for (const StepPoint& step : run.steps) curve.points.emplace_back(static_cast<double>(step.step), value(step));
  return curve;
}

std::string curves_of(const RunRecords& run) {
  std::string html;
  const auto draw = [&](const char* title, std::vector<CurvePicture::Curve> curves) {
    const bool any = std::ranges::any_of(curves, [](const CurvePicture::Curve& curve) {
      return std::ranges::any_of(curve.points, [](const auto& point) { return std::isfinite(point.second); });
    });
    if (any) html += svg_picture(CurvePicture{.title = title, .x_name = "step", .curves = std::move(curves)});
  };
  CurvePicture::Curve evaluation{.name = "evaluation", .points = {}};
  for (const EvaluationPoint& e : run.evaluations) evaluation.points.emplace_back(static_cast<double>(e.step), e.loss);
  std::vector<CurvePicture::Curve> losses{curve_of(run, "training", [](const StepPoint& s) { return s.loss; })};
  if (!evaluation.points.empty()) losses.push_back(std::move(evaluation));
  draw("Loss", std::move(losses));
  draw("Tokens/s", {curve_of(run, "", [](const StepPoint& s) { return s.tokens_per_s; })});
  draw("MFU, %", {curve_of(run, "", [](const StepPoint& s) { return s.mfu * 100; })});
  draw("Norm of the gradient", {curve_of(run, "", [](const StepPoint& s) { return s.grad_norm; })});
  draw("Learning rate", {curve_of(run, "", [](const StepPoint& s) { return s.lr; })});
  return html;
}

// Milliseconds of a step by use, of each rank: the mean of its newest records.
std::string time_bars(const RunRecords& run) {
  BarsPicture picture{.title = "Where a step's time goes, by rank", .kinds = {}, .rows = {}};
  for (const std::string_view name : kTimeUseNames) picture.kinds.emplace_back(name);
  for (const auto& [rank, history] : run.ranks) {
    if (history.steps.empty() || picture.rows.size() == kMostBars) continue;
    BarsPicture::Row row{.name = fmt::format("rank {}", rank), .values = {}, .tips = {}};
    for (std::size_t u = 0; u < kTimeUses; ++u) {
      double ms = 0;
      for (const RankPoint& step : history.steps)
        ms += 1e3 * static_cast<double>(step.uses[u]) / static_cast<double>(history.steps.size());
      row.values.push_back(ms);
      row.tips.push_back(fmt::format("{} {:.2f} ms", kTimeUseNames[u], ms));
    }
    picture.rows.push_back(std::move(row));
  }
  return picture.rows.empty() ? "" : svg_picture(picture);
}

std::string memory_bars(const std::vector<ReportedMemory>& memory) {
  BarsPicture picture{.title = "Memory by tag: planned above measured", .kinds = {}, .rows = {}};
  const auto kind_of = [&](const std::string& tag) {
    const auto at = std::ranges::find(picture.kinds, tag);
    if (at != picture.kinds.end()) return static_cast<std::size_t>(at - picture.kinds.begin());
    picture.kinds.push_back(tag);
    return picture.kinds.size() - 1;
  };
  const auto add = [&](std::string name, const BytesOfTags& tags) {
    if (tags.empty()) return;
    BarsPicture::Row row{.name = std::move(name), .values = {}, .tips = {}};
    for (const auto& [tag, bytes] : tags) {
      const std::size_t kind = kind_of(tag);
      if (row.values.size() <= kind) row.values.resize(kind + 1), row.tips.resize(kind + 1);
      row.values[kind] = static_cast<double>(bytes);
      row.tips[kind] = tag + " " + byte_text(bytes);
    }
    picture.rows.push_back(std::move(row));
  };
  for (std::size_t i = 0; i < std::min(memory.size(), kMostBars); ++i) {
    add(fmt::format("rank {}, planned", memory[i].rank), memory[i].planned_tags);
    add(fmt::format("rank {}, measured", memory[i].rank), memory[i].measured_tags);
  }
  return picture.rows.empty() ? "" : svg_picture(picture);
}

}  // namespace

std::string report_html(const Report& report, const RunRecords& run) {
  const std::string name = markup_text(run.folder.filename().string());
  std::string html =
      fmt::format("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n{}<title>{}</title>\n</head>\n<body>\n", kHead, name);
  html += fmt::format("<h1>{}</h1>\n", name);
  for (const ReportSection& section : report_sections(report)) {
    html += fmt::format("<h2>{}</h2>\n<table>\n", markup_text(section.title));
    for (const auto& [what, value] : section.rows)
      html += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", markup_text(what), markup_text(value));
    html += "</table>\n";
    if (section.title == "Time") html += time_bars(run);
    if (section.title == "Quality") html += curves_of(run);
    if (section.title.starts_with("Memory")) html += memory_bars(report.memory);
  }
  return html + "</body>\n</html>\n";
}

}  // namespace lockstep
