#include "cli/inspect_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/output_file.h"
#include "checkpoint/disk.h"
#include "cli/text_table.h"
#include "pictures/measured_step_picture.h"
#include "plan/step_memory.h"
#include "spec/run/run_toml.h"
#include "spec/text/text_input.h"
#include "telemetry/number_text.h"
#include "telemetry/trace.h"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

// By step. Lines that are no steps, such as evaluations, are passed over.
std::map<std::int64_t, double> losses_of(const fs::path& run) {
  const fs::path file = run / "metrics.jsonl";
  require_regular_or_none(file);
  std::ifstream in(file);
  if (!in)
    throw UserError(ExitCode::bad_input_file, fmt::format("{} cannot be read", file.string()), "name a run folder");
  std::map<std::int64_t, double> losses;
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("step") || !json.contains("loss")) continue;
    if (json["step"].is_number_integer() && json["loss"].is_number()) losses[json["step"]] = json["loss"];
  }
  if (losses.empty())
    throw UserError(ExitCode::bad_input_file, fmt::format("{} has no step", file.string()), "name another run");
  return losses;
}

MeasuredKind kind_of(const TraceSpan& span) {
  if (span.kind == SpanKind::wait) return MeasuredKind::wait;
  if (span.name.ends_with("forward")) return MeasuredKind::forward;
  if (span.name.ends_with("backward input") || span.name.ends_with("backward weight")) return MeasuredKind::backward;
  return span.name == "norm" || span.name.ends_with("update") ? MeasuredKind::update : MeasuredKind::message;
}

// Of one step, by rank, in the order of time.
std::vector<std::vector<TraceSpan>> spans_of(const Trace& trace, std::int64_t step) {
  std::vector<std::vector<TraceSpan>> ranks(std::max<std::size_t>(1, trace.stage_of.size()));
  for (const TraceSpan& span : trace.spans)
    if (span.step == step) ranks.at(static_cast<std::size_t>(span.rank)).push_back(span);
  for (auto& rank : ranks) std::ranges::sort(rank, {}, &TraceSpan::begin);
  return ranks;
}

// Bytes from one action of rank 0 to the next: the compute spans of a step are its list.
void add_memory(MeasuredStepPicture& picture, const std::vector<TraceSpan>& spans, const StepMemory& memory,
                double from, const fs::path& file) {
  for (const TraceSpan& span : spans)
    if (span.kind == SpanKind::compute) picture.times.push_back(span.begin - from);
  if (picture.times.size() != memory.in_use.size())
    throw UserError(ExitCode::bad_input_file,
                    fmt::format("{}: rank 0 has {} actions in the step, and the run {}", file.string(),
                                picture.times.size(), memory.in_use.size()),
                    "train with --set run.trace=1, and do not change the layout after it");
  picture.times.push_back(spans.back().end - from);
  for (int t = 0; t < kTags; ++t) {
    auto& band = picture.bands.emplace_back();
    band.name = name_of(static_cast<Tag>(t));
    for (const StepMemory::ByTag& bytes : memory.in_use) band.bytes.push_back(bytes[static_cast<std::size_t>(t)]);
    picture.held += memory.held[static_cast<std::size_t>(t)];
  }
}

}  // namespace

void require_regular_or_none(const fs::path& file) {
  std::error_code ignored;
  const fs::file_type type = fs::status(file, ignored).type();
  if (type == fs::file_type::regular || type == fs::file_type::not_found) return;
  throw UserError(ExitCode::bad_input_file, fmt::format("{} is not a regular file", file.string()),
                  "name the folder of a run, as `lockstep train --out` was given it");
}

void show_beside(const fs::path& run, const fs::path& other) {
  const std::map<std::int64_t, double> mine = losses_of(run), theirs = losses_of(other);
  TextTable table{
      .title = "loss of each step", .heads = {"step", run.filename().string(), other.filename().string()}, .rows = {}};
  double furthest = 0;
  for (const auto& [step, loss] : mine) {
    const auto at = theirs.find(step);
    if (at == theirs.end()) continue;
    furthest = std::max(furthest, std::abs(loss - at->second) / std::abs(at->second));
    table.rows.push_back(
        {fmt::format("{:>4}", step), fmt::format("{:.10f}", loss), fmt::format("{:.10f}", at->second)});
  }
  fmt::print("{}\n", table.plain());
  fmt::print("{} steps, equal {}\n", table.rows.size(),
             furthest == 0 ? "bit for bit" : fmt::format("to {:.0e} of the loss", furthest));
}

void draw_step(const fs::path& run, const fs::path& svg) {
  require_output_file(svg, fmt::format("--svg {}", quote_text(svg.string())));
  const fs::path file = run / "trace.json";
  if (std::error_code ignored; fs::is_directory(run, ignored) && !fs::exists(file, ignored))
    throw UserError(ExitCode::bad_input_file, fmt::format("{} has no trace.json: none was asked for", run.string()),
                    "train with --set run.trace=1, and name that run's folder");
  const Trace trace = read_trace(file);
  const RunSpec spec = read_run_file(run / "run.toml");
  std::int64_t step = 0;
  for (const TraceSpan& span : trace.spans) step = std::max(step, span.step);
  const std::vector<std::vector<TraceSpan>> ranks = spans_of(trace, step);
  if (trace.layout != to_text(spec.layout) || std::ranges::any_of(ranks, [](const auto& r) { return r.empty(); }))
    throw UserError(ExitCode::bad_input_file,
                    fmt::format("{}: it has no step of all ranks of {}", file.string(), to_text(spec.layout)),
                    "train with --set run.trace=1");
  double from = ranks[0][0].begin;
  for (const auto& rank : ranks) from = std::min(from, rank.front().begin);
  MeasuredStepPicture picture;
  for (const auto& rank : ranks) {
    auto& row = picture.ranks.emplace_back();
    for (const TraceSpan& span : rank)
      row.push_back({.kind = kind_of(span),
                     .begin = span.begin - from,
                     .end = span.end - from,
                     .what = span.micro < 0 ? span.name : fmt::format("{}, micro-batch {}", span.name, span.micro)});
  }
  add_memory(picture, ranks[0], step_memory(spec, 0), from, file);
  picture.title = fmt::format("Step {} of {}: {}", step, run.filename().string(), to_text(spec.layout));
  picture.subtitle =
      fmt::format("{} parameters, {} samples of {} tokens, {}, {} rank{}",
                  count_text(static_cast<double>(parameter_count(spec.model))), spec.train.global_batch, spec.data.seq,
                  name_of(spec.precision.compute), ranks.size(), ranks.size() == 1 ? "" : "s");
  const std::string text = svg_picture(picture);
  replace_file(Disk(), svg, [&](DiskFile& out) { out.write(text.data(), std::ssize(text)); });
  fmt::print("{}\n", svg.string());
}

}  // namespace lockstep
