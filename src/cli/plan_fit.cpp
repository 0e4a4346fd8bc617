#include "cli/plan_fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/byte_size.h"
#include "cli/text_table.h"
#include "cli/usage_error.h"
#include "plan/fit_search.h"
#include "plan/gathered_room.h"
#include "plan/plan.h"
#include "spec/text/text_input.h"
#include "telemetry/number_text.h"
#include "train/training_run.h"

namespace lockstep {

namespace {

constexpr std::size_t kMostTooLarge = 12;  // rows of the table

FitLimits limits_of(const FitArguments& arguments, const RunSpec& spec) {
  if (!arguments.size.empty()) {
    const std::optional<std::int64_t> bytes = parse_byte_size(arguments.size);
    if (!bytes || *bytes == 0)
      refuse("--fit " + quote_text(arguments.size), "give a size as in 24GiB or 512MiB, or the run file before --fit");
    return {.device = *bytes};
  }
  const Device device = device_of(spec);
  const std::int64_t free = available_memory(device), ranks = spec.layout.ranks();
  if (device == Device::cuda && free == FitLimits::kNone)
    refuse("--fit: there is no GPU here whose memory is free", "say how large one is, as in --fit 80GiB");
  return {.device = free / ranks,
          .host = available_memory(Device::cpu) / ranks,
          .disk = device == Device::cpu ? available_disk(spec) / ranks : FitLimits::kNone};
}

std::string relative(const FitSetting& setting, const FitResult& result) {
  return fmt::format("{:.3f}x", setting.seconds / result.asked.seconds);
}

// What is too large, and what most of it is.
std::string why_too_large(const FitSetting& s, const FitLimits& limits) {
  if (s.device > limits.device) {
    const Tag tag = s.largest_tag();
    return fmt::format("{} {}", name_of(tag), byte_text(s.peaks[static_cast<std::size_t>(tag)]));
  }
  return s.host > limits.host ? fmt::format("host {}", byte_text(s.host)) : fmt::format("disk {}", byte_text(s.disk));
}

std::string elsewhere(const FitSetting& s) {
  std::string text;
  if (s.host > 0) text += fmt::format(", {} on the host", byte_text(s.host));
  if (s.disk > 0) text += fmt::format(", {} on the disk", byte_text(s.disk));
  if (s.moved > 0) text += fmt::format(", {} moved per step", byte_text(s.moved));
  return text;
}

// What was asked for and those that come nearest, in the order of the search. Empty: there are none.
std::string too_large_table(const FitResult& result, const FitLimits& limits) {
  std::vector<const FitSetting*> nearest;
  for (const FitSetting& setting : result.too_large) nearest.push_back(&setting);
  const std::size_t all = nearest.size();
  if (all == 0) return "";
  std::ranges::stable_sort(nearest, {}, [](const FitSetting* s) { return s->changes.empty() ? 0 : s->device; });
  nearest.resize(std::min(all, kMostTooLarge));
  std::ranges::sort(nearest);  // they point into one list
  TextTable table{.title = "cheaper, and too large", .heads = {"setting", "time", "needs", "most of it"}, .rows = {}};
  for (const FitSetting* s : nearest)
    table.rows.push_back({s->changes.empty() ? s->text() : fmt::format("{}", fmt::join(s->changes, " ")),
                          relative(*s, result), byte_text(s->device), why_too_large(*s, limits)});
  return fmt::format("\n{}{}", table.plain(),
                     all > nearest.size() ? fmt::format("  and {} more\n", all - nearest.size()) : "");
}

nlohmann::ordered_json setting_json(const FitSetting& s) {
  nlohmann::ordered_json tags = nlohmann::ordered_json::object();
  for (int t = 0; t < kTags; ++t)
    if (const std::int64_t bytes = s.peaks[static_cast<std::size_t>(t)]; bytes > 0)
      tags[std::string(name_of(static_cast<Tag>(t)))] = bytes;
  return {{"set", s.changes},     {"fits", s.fits},       {"bytes", s.device},
          {"host_bytes", s.host}, {"disk_bytes", s.disk}, {"moved_bytes", s.moved},
          {"seconds", s.seconds}, {"tags", tags},         {"largest_tag", name_of(s.largest_tag())}};
}

nlohmann::ordered_json fit_json(const FitResult& result, const FitLimits& limits, const FitRates& rates) {
  nlohmann::ordered_json too_large = nlohmann::ordered_json::array();
  for (const FitSetting& setting : result.too_large) too_large.push_back(setting_json(setting));
  return {{"limit_bytes", limits.device},
          {"asked", setting_json(result.asked)},
          {"cheapest", setting_json(*result.cheapest)},
          {"too_large", too_large},
          {"planned", result.planned},
          {"rates",
           {{"flops", rates.machine.flops},
            {"bytes", rates.machine.bytes},
            {"kernel_seconds", rates.kernel},
            {"sent_bytes", rates.sent},
            {"message_seconds", rates.latency},
            {"moved_bytes", rates.moved},
            {"saved_bytes", rates.saved},
            {"source", rates.source}}}};
}

}  // namespace

int show_fit(const FitArguments& arguments, RunSpec spec) {
  const FitLimits limits = limits_of(arguments, spec);
  resolve_gathered(spec, limits.device);
  const FitRates rates = measured_rates(spec);
  const FitResult result = search_fit(spec, limits, rates, arguments.change_numbers);
  if (!result.cheapest)
    throw UserError(
        ExitCode::does_not_fit,
        fmt::format("nothing fits into {} per rank: the least that was found is {}, {} ({})", byte_text(limits.device),
                    byte_text(result.least.device), result.least.text(), why_too_large(result.least, limits)),
        fmt::format("use a smaller model, a shorter data.seq, more ranks, or more memory{}",
                    arguments.change_numbers ? "" : "; --allow numbers tries bf16 state as well"));
  if (arguments.json) {
    fmt::print("{}\n", fit_json(result, limits, rates).dump(2));
    return static_cast<int>(ExitCode::done);
  }
  const FitSetting& found = *result.cheapest;
  const auto line = [](std::string_view name, const std::string& text) { fmt::print("{:<12} {}\n", name, text); };
  line("memory",
       fmt::format("{} per rank{}", byte_text(limits.device), arguments.size.empty() ? ", which are free here" : ""));
  line("asked for", fmt::format("{}{}: it {}", byte_text(result.asked.device), elsewhere(result.asked),
                                result.asked.fits ? "fits" : "does not fit"));
  if (!result.asked.fits) {
    line("cheapest", found.text());
    line("", fmt::format("{}{}; a step takes {} the time of what was asked for, as predicted", byte_text(found.device),
                         elsewhere(found), relative(found, result)));
    fmt::print("{}\n{} settings were planned. Times are predicted from meta's counts and {}.\n",
               too_large_table(result, limits), result.planned, rates.source);
  }
  return static_cast<int>(ExitCode::done);
}

}  // namespace lockstep
