#include "cli/compare_view.h"

#include <fmt/color.h>

#include <algorithm>
#include <cmath>

#include "cli/compare_tables.h"
#include "telemetry/number_text.h"

namespace lockstep {

namespace {

// The layouts shown in detail: at one number of ranks where several were asked for.
ShownLayouts shown(const Comparison& comparison, const CompareAsked& asked) {
  ShownLayouts all;
  for (const ComparedLayout& one : comparison.layouts)
    if (asked.scale.empty() || one.layout.ranks() == asked.ranks) all.push_back(&one);
  return all;
}

// Every figure that is not as planned, one per line.
std::string differences(const ComparedLayout& one) {
  std::string out;
  const auto say = [&](int rank, std::string_view what, std::int64_t planned, std::int64_t measured) {
    if (planned != measured)
      out += fmt::format("NOT AS PLANNED: {}, rank {}: {}: {} planned, {} measured\n", to_text(one.layout), rank, what,
                         grouped_digits(planned), grouped_digits(measured));
  };
  const ComparedRank& fullest = one.fullest_rank();
  for (std::size_t t = 0; t < kTags; ++t)
    say(one.fullest, fmt::format("bytes of {}", name_of(static_cast<Tag>(t))), one.fullest_plan.peaks[t],
        fullest.peaks[t]);
  say(one.fullest, "bytes of all", one.fullest_plan.peak, fullest.peak);
  for (int op = 0; op < kCommOps && !one.messages_as_planned(); ++op)
    say(one.sender, fmt::format("elements sent by {}", name_of(static_cast<CommOp>(op))),
        one.sender_plan.messages.sent(static_cast<CommOp>(op)),
        one.sender_rank().messages.sent(static_cast<CommOp>(op)));
  if (out.empty() && !one.ok())
    out = fmt::format("NOT AS PLANNED: {}: {}\n", to_text(one.layout),
                      one.memory_as_planned() ? "calls, types or numbers of messages" : "bytes by unit");
  return out;
}

// What is not predicted or measured here, in one line; nothing where all is.
std::string unmeasured(const RunSpec& run, const Comparison& comparison, const CompareAsked& asked) {
  if (asked.machine && run.run.device == RunDevice::cuda)
    return "On a GPU waits and a pipeline's bubble are not measured.\n";
  if (asked.machine) return "";
  if (asked.link)
    return fmt::format("Between ranks is a simulated link: {}. Times are measured, not predicted.\n",
                       to_text(*asked.link));
  if (run.run.device == RunDevice::cuda)
    return "On a GPU times are measured, not predicted; waits and a pipeline's bubble are not measured.\n";
  if (asked.ranks_here == 0) return "";
  return asked.ranks_here < comparison.layouts.front().layout.ranks()
             ? "Of processes times are measured, not predicted; over several hosts a pipeline's bubble is not "
               "measured.\n"
             : "Of processes times are measured, not predicted.\n";
}

std::string header(const RunSpec& run, const Comparison& comparison, const CompareAsked& asked,
                   const LayoutNames& names) {
  const ComparedLayout& one = comparison.layouts.front();
  const auto counted = [](std::int64_t n, std::string_view what) {
    return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
  };
  std::string out = fmt::format("{} parameters, {} of {} tokens per step{}, {}; ",
                                count_text(static_cast<double>(one.fullest_plan.parameters)),
                                counted(run.train.global_batch, "sample"), run.data.seq,
                                names.micro_differs()   ? ""
                                : one.layout.micro == 1 ? " in 1 micro-batch"
                                                        : fmt::format(" in {} micro-batches", one.layout.micro),
                                name_of(run.precision.compute));
  const bool on_gpu = run.run.device == RunDevice::cuda, processes = asked.ranks_here > 0;
  const std::int64_t ranks = asked.scale.empty() ? one.layout.ranks() : asked.ranks;
  const std::string threads = counted(one.threads, "thread"), cores = counted(asked.cores, "core");
  if (on_gpu)
    out += processes ? fmt::format("{}, each a process with a GPU", counted(ranks, "rank"))
                     : fmt::format("{} on one GPU", names.ranks_differ() ? "ranks" : counted(ranks, "rank"));
  else if (names.ranks_differ())
    out += cores;
  else
    out += fmt::format("{}{} of {} on {}", counted(ranks, "rank"), processes ? ", each a process" : "", threads, cores);
  out += fmt::format(", {}\n", counted(asked.steps, "step"));
  std::int64_t most = asked.ranks_here;
  for (const ComparedLayout& any : comparison.layouts)
    if (!processes) most = std::max(most, any.layout.ranks());
  if (most > asked.cores && !asked.brief && !on_gpu)
    out += fmt::format("{} ranks share {}: a step's time is that of all of them{}.\n", most, cores,
                       asked.scale.empty() ? "" : ", and efficiency is relative to the cores there are");
  return out + (asked.brief ? "" : unmeasured(run, comparison, asked));
}

// How far the last losses are from the first layout's.
std::string losses_text(const ShownLayouts& all) {
  const double first = all.front()->loss;
  double furthest = 0;
  for (const ComparedLayout* one : all) furthest = std::max(furthest, std::abs(one->loss - first) / std::abs(first));
  return furthest == 0 ? "Losses are equal bit for bit.\n"
                       : fmt::format("Losses are equal to {:.0e} of their value.\n", furthest);
}

constexpr std::string_view kBriefLegend =
    "memory: bytes that the fullest rank held at most. messages, sent: of the fullest sender, per step.\n"
    "plan =: memory and messages were predicted before the run and are equal to the byte.\n";

constexpr std::string_view kLegend =
    "plan =: predicted on meta and measured, equal to the byte. exposed: a rank waited for messages. Numbers,\n"
    "such as loss and norm, are not counted. ddp: everything everywhere, overlap=on. zero=2 and 3: grad_sync=micro.\n"
    "by axis: between ranks with other parts of the batch (dp), other layers (pp), other parts of every sample (cp) "
    "or\n"
    "of every layer (tp).\n";

// What the predicted times are based on.
std::string calibration_text(const LayoutForecast& forecast) {
  const MachineRates& machine = forecast.from.machine;
  const MessageRates& messages = forecast.from.messages;
  const ActionRates& actions = forecast.from.actions;
  std::string out = fmt::format("plan of times: made before any layout ran. A rank has products at {:.1f} GFLOP/s",
                                machine.flops / 1e9);
  out += fmt::format(" and copies at {:.1f} GB/s", machine.bytes / 1e9);
  if (messages.latency > 0)
    out += fmt::format(",\na message takes {:.0f} us and is summed at {:.1f}, copied at {:.1f} GB/s",
                       messages.latency * 1e6, messages.summed / 1e9, messages.copied / 1e9);
  out += actions.measured ? ";\ntwo steps of one rank alone measured how far kernels are below that."
                          : ";\none rank alone does not fit, so kernels are taken to be as fast as that.";
  return out + " off: over what was measured.\n";
}

std::string machine_text(const MachineSpec& machine) {
  return fmt::format(
      "plan of times: by the file of machine {}, before any layout ran. off: over what was measured. repeats: the\n"
      "furthest that a round's median step is from the median of the rounds'.\n",
      machine.name);
}

}  // namespace

std::vector<ScoredLayout> scored_layouts(const Comparison& comparison) {
  std::vector<ScoredLayout> all;
  for (const ComparedLayout& one : comparison.layouts)
    if (one.forecast)
      all.push_back({.name = to_text(one.layout),
                     .predicted = one.forecast->step_seconds,
                     .measured = one.step_seconds(),
                     .repeatability = one.repeatability});
  return all;
}

std::optional<double> efficiency(const Comparison& comparison, const ComparedLayout& of, int cores) {
  const auto used = [&](const ComparedLayout& one) {
    return static_cast<double>(std::min<std::int64_t>(one.layout.ranks() * one.threads, cores));
  };
  for (const ComparedLayout& one : comparison.layouts)
    if (one.layout.ranks() == 1) return of.tokens_a_second() / used(of) / (one.tokens_a_second() / used(one));
  return std::nullopt;
}

std::string compare_text(const RunSpec& run, const Comparison& comparison, const CompareAsked& asked,
                         CompareStyle style) {
  std::string out;
  const ShownLayouts all = shown(comparison, asked);
  const auto add = [&](const TextTable& table) {
    out += "\n" + (style == CompareStyle::markdown ? table.markdown() : table.plain());
  };
  if (!comparison.layouts.empty()) {
    const LayoutNames names(comparison, !asked.scale.empty(), style != CompareStyle::markdown);
    out += header(run, comparison, asked, names);
    if (asked.brief) {
      add(brief_table(all, names));
      out += "\n" + names.legend() + losses_text(all) + std::string(kBriefLegend);
    } else {
      if (!all.empty())
        for (const TextTable& table : cost_tables(all, names, asked.machine.has_value())) add(table);
      if (!asked.scale.empty()) add(scaling_table(comparison, asked, names));
      out += "\n" + names.legend() + std::string(kLegend);
      if (const auto scored = scored_layouts(comparison); asked.machine && !scored.empty())
        out += machine_text(*asked.machine) + score_text(scored);
      else if (const ComparedLayout& one = all.empty() ? comparison.layouts.front() : *all.front(); one.forecast)
        out += calibration_text(*one.forecast);
    }
  }
  for (const auto& [layout, why] : comparison.left_out) out += fmt::format("left out: {}: {}\n", to_text(layout), why);
  for (const auto& [ranks, reasons] : asked.skipped)
    for (const std::string& why : reasons) out += fmt::format("left out: {} ranks: {}\n", ranks, why);
  if (comparison.stopped)
    out += comparison.layouts.size() + comparison.left_out.size() < asked.layouts
               ? fmt::format("stopped as asked, after {} of {} layouts\n", comparison.layouts.size(), asked.layouts)
               : fmt::format("stopped as asked, before all {} steps\n", asked.steps);
  for (const ComparedLayout& one : comparison.layouts) {
    const std::string text = differences(one);
    if (text.empty()) continue;
    out += style == CompareStyle::colour
               ? fmt::format(fmt::emphasis::bold | fmt::fg(fmt::terminal_color::red), "{}", text)
               : text;
  }
  return out;
}

}  // namespace lockstep
