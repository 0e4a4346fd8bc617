#include "cli/report_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/status_text.h"
#include "telemetry/mfu_band.h"
#include "telemetry/number_text.h"

namespace lockstep {

namespace {

constexpr const char* kNotRecorded = "not recorded";
constexpr std::size_t kMostRanks = 64;  // rows of single ranks

std::string share_text(double share) { return fmt::format("{:.1f}%", share * 100); }

template <class Format>
std::string or_unrecorded(const std::optional<double>& value, const Format& format) {
  return value ? format(*value) : kNotRecorded;
}

std::string tokens_text(double tokens) { return grouped_digits(static_cast<std::int64_t>(tokens)) + " tokens/s"; }

ReportSection run_section(const Report& r) {
  ReportSection s{.title = "Run", .rows = {{"folder", r.folder}}};
  if (!r.layout.empty()) s.rows.emplace_back("layout", r.layout);
  if (r.ranks) s.rows.emplace_back("ranks", fmt::format("{}{}", *r.ranks, r.device.empty() ? "" : ", " + r.device));
  if (r.parameters) s.rows.emplace_back("parameters", grouped_digits(*r.parameters));
  s.rows.emplace_back("steps",
                      fmt::format("{}{}{}", r.last_step, r.planned_steps ? fmt::format(" of {}", *r.planned_steps) : "",
                                  !r.running   ? ""
                                  : *r.running ? ", running"
                                               : ", not running"));
  return s;
}

ReportSection time_section(const Report& r) {
  const ReportedTime& t = r.time;
  ReportSection s{.title = "Time", .rows = {}};
  s.rows.emplace_back("first to last step", duration_text(t.wall_seconds));
  const auto ms = [](double seconds) { return fmt::format("{:.1f} ms", seconds * 1e3); };
  s.rows.emplace_back("step", or_unrecorded(t.step_seconds, ms) + " (median)");
  s.rows.emplace_back("slowest of twenty", or_unrecorded(t.slowest_seconds, ms));
  if (!t.split) s.rows.emplace_back("where it went", kNotRecorded);
  for (std::size_t u = 0; t.split && u < kTimeUses; ++u)
    if (t.share[u] > 0)
      s.rows.emplace_back(
          kTimeUseNames[u],
          fmt::format("{:>6}{}", share_text(t.share[u]),
                      r.ranks.value_or(1) > 1 ? fmt::format("   most on rank {}, last step", t.most_rank[u]) : ""));
  if (!t.advice.empty()) s.rows.emplace_back("to raise the MFU", t.advice);
  return s;
}

ReportSection efficiency_section(const ReportedEfficiency& e) {
  ReportSection s{.title = "Efficiency", .rows = {}};
  s.rows.emplace_back("speed", or_unrecorded(e.tokens_per_s, tokens_text));
  s.rows.emplace_back("per rank", or_unrecorded(e.tokens_per_s_rank, tokens_text));
  s.rows.emplace_back("MFU",
                      !e.mfu ? kNotRecorded
                             : fmt::format("{} with attention{}: {}", share_text(*e.mfu),
                                           e.mfu_6n ? fmt::format(", {} by 6N", share_text(*e.mfu_6n)) : "", e.band));
  if (e.mfu && mfu_band(*e.mfu) == MfuBand::above_peak) s.rows.emplace_back("about the MFU", std::string(kAbovePeak));
  if (!e.baseline.empty()) s.rows.emplace_back("baseline", e.baseline);
  if (e.baseline_rank) s.rows.emplace_back("baseline, per rank", tokens_text(*e.baseline_rank));
  s.rows.emplace_back("against the baseline",
                      e.against_baseline ? share_text(*e.against_baseline) : "unknown: " + e.why_unknown);
  return s;
}

ReportSection quality_section(const ReportedQuality& q) {
  const auto digits = [](double value) { return fmt::format("{:.4f}", value); };
  ReportSection s{.title = "Quality", .rows = {}};
  s.rows.emplace_back("loss", fmt::format("{} -> {}, best {}", or_unrecorded(q.first_loss, digits),
                                          or_unrecorded(q.last_loss, digits), or_unrecorded(q.best_loss, digits)));
  s.rows.emplace_back("evaluation", q.eval_step < 0 ? std::string(kNotRecorded)
                                                    : fmt::format("loss {} after step {}",
                                                                  or_unrecorded(q.eval_loss, digits), q.eval_step));
  s.rows.emplace_back("perplexity", or_unrecorded(q.perplexity, digits));
  s.rows.emplace_back("next-token accuracy", or_unrecorded(q.accuracy, share_text));
  return s;
}

ReportSection memory_section(const std::vector<ReportedMemory>& memory) {
  ReportSection s{.title = "Memory (sum of the tags' peaks)", .rows = {}};
  const auto bytes = [](const std::optional<std::int64_t>& n) { return n ? grouped_digits(*n) : "unknown"; };
  for (const ReportedMemory& m : memory) {
    if (s.rows.size() == kMostRanks) {
      s.rows.emplace_back("further ranks", fmt::format("{}, in --json", memory.size() - kMostRanks));
      break;
    }
    s.rows.emplace_back(fmt::format("rank {}", m.rank),
                        fmt::format("{} planned, {} measured{}", bytes(m.planned), bytes(m.measured),
                                    m.planned && m.planned == m.measured ? ", equal to the byte" : ""));
  }
  if (s.rows.empty()) s.rows.emplace_back("ranks", kNotRecorded);
  return s;
}

ReportSection stability_section(const ReportedStability& t) {
  ReportSection s{.title = "Stability", .rows = {}};
  const auto recorded = [&](std::int64_t n) { return t.events ? std::to_string(n) : kNotRecorded; };
  s.rows.emplace_back("faults", recorded(t.faults));
  for (const std::string& text : t.fault_texts) s.rows.emplace_back("", text);
  s.rows.emplace_back("stalls", recorded(t.stalls));
  s.rows.emplace_back("restarts", recorded(t.restarts));
  if (t.workers) s.rows.emplace_back("workers", workers_text(*t.workers));
  s.rows.emplace_back("skipped steps", t.overflows > 0 ? fmt::format("{}, {} of them because gradients overflowed",
                                                                     t.skipped, t.overflows)
                                                       : std::to_string(t.skipped));
  s.rows.emplace_back("loss spikes", std::to_string(t.spikes));
  s.rows.emplace_back("imbalance", t.imbalance ? fmt::format("rank {} is busy {} longer than the mean of ranks",
                                                             t.busiest_rank, share_text(*t.imbalance))
                                               : "unknown: it takes records of two ranks or more");
  return s;
}

// The parts add up to the whole.
ReportSection goodput_section(const Goodput& g) {
  ReportSection s{.title = "Goodput", .rows = {}};
  s.rows.emplace_back("goodput", fmt::format("{} of {}", share_text(g.share()), duration_text(g.whole)));
  for (const auto& [name, seconds] : g.parts()) {
    if (seconds <= 0 && name != "steps") continue;
    const std::string what = name == "lost" ? fmt::format(" ({} steps)", g.lost_steps) : "";
    s.rows.emplace_back(
        name == "set_up" ? "set-up" : name,
        fmt::format("{:>6}   {}{}", share_text(g.whole > 0 ? seconds / g.whole : 0), seconds_text(seconds), what));
  }
  return s;
}

}  // namespace

std::vector<ReportSection> report_sections(const Report& r) {
  std::vector<ReportSection> all{run_section(r), time_section(r), efficiency_section(r.efficiency)};
  if (r.pipeline)
    all.push_back({.title = "Pipeline",
                   .rows = {{"bubble", fmt::format("{} measured, {} ideal", share_text(r.pipeline->bubble),
                                                   share_text(r.pipeline->ideal_bubble))},
                            {"throughput", share_text(r.pipeline->over_ideal) + " of the ideal schedule's"}}});
  if (r.prediction)
    all.push_back(
        {.title = fmt::format("Prediction (machine {})", r.prediction->machine), .rows = score_lines(*r.prediction)});
  all.push_back(quality_section(r.quality));
  all.push_back(memory_section(r.memory));
  all.push_back(stability_section(r.stability));
  if (r.goodput) all.push_back(goodput_section(*r.goodput));
  return all;
}

std::string report_text(const Report& report) {
  std::size_t width = 0;
  const std::vector<ReportSection> sections = report_sections(report);
  for (const ReportSection& section : sections)
    for (const auto& row : section.rows) width = std::max(width, row.first.size());
  std::string text;
  for (const ReportSection& section : sections) {
    text += fmt::format("{}{}\n", text.empty() ? "" : "\n", section.title);
    for (const auto& [name, value] : section.rows) text += fmt::format("  {:<{}}  {}\n", name, width, value);
  }
  return text;
}

}  // namespace lockstep
