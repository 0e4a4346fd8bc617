#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/compare_levers.h"
#include "cli/compare_tables.h"
#include "cli/text_table.h"
#include "telemetry/number_text.h"

namespace lockstep {

namespace {

using Json = nlohmann::ordered_json;

// Of the two ways, the one that has more: weights are brought and only updates write them.
std::int64_t moved_one_way(const Staging::Traffic& moved) { return std::max(moved.to_device, moved.from_device); }

std::int64_t sent_of(const ComparedLever& one) { return one.plan.messages.total().bytes_sent; }

// Moved one way, and sent, per second of a step.
double rate_of(const ComparedLever& one, std::int64_t bytes) {
  return one.ran ? static_cast<double>(bytes) / one.ran->step_seconds() : 0;
}

// Names as rows have them: one that would make a table wider than a terminal becomes a number, explained below.
class LeverNames {
 public:
  explicit LeverNames(bool shortens) : shortens_(shortens) {}
  std::string of(const ComparedLever& one) {
    const std::string name = one.lever.name(), star = one.lever.changes_numbers ? " *" : "";
    if (!shortens_ || name.size() <= kLongest) return name + star;
    auto at = std::ranges::find(long_, name);
    if (at == long_.end()) at = long_.insert(long_.end(), name);
    return fmt::format("({}){}", at - long_.begin() + 1, star);
  }
  std::string legend() const {
    std::string out;
    for (std::size_t i = 0; i < long_.size(); ++i) out += fmt::format("({}): {}\n", i + 1, long_[i]);
    return out;
  }

 private:
  static constexpr std::size_t kLongest = 34;
  bool shortens_;
  std::vector<std::string> long_;
};

TextTable places_table(const LeverComparison& comparison, LeverNames& names) {
  std::int64_t largest = 0;
  for (const ComparedLever& one : comparison.levers) largest = std::max(largest, one.plan.peak);
  const ByteUnit unit(largest);
  TextTable table{
      .title = fmt::format("memory, {}: of the rank that needs most", unit.name), .heads = {"lever"}, .rows = {}};
  for (int t = 0; t < kTags; ++t) table.heads.emplace_back(short_head_of(static_cast<Tag>(t)));
  table.heads.insert(table.heads.end(), {"device", "host", "disk", "fits", "plan"});
  for (const ComparedLever& one : comparison.levers) {
    auto& row = table.rows.emplace_back(std::vector{names.of(one)});
    const auto add = [&](std::int64_t bytes) { row.push_back(unit.text(static_cast<double>(bytes))); };
    for (const std::int64_t bytes : one.plan.peaks) add(bytes);
    for (const std::int64_t bytes : {one.plan.peak, one.plan.host, one.plan.disk}) add(bytes);
    row.emplace_back(one.why_not.empty() ? "yes" : "no");
    row.emplace_back(!one.ran ? "" : one.ran->ok() ? "=" : "≠ NOT AS PLANNED");
  }
  table.drop_empty_columns();
  return table;
}

TextTable costs_table(const LeverComparison& comparison, const LeverCeilings& ceilings, LeverNames& names) {
  TextTable table{
      .title = "per step: what is offloaded and moves, one way, messages of the rank that sends most, and time",
      .heads = {"lever", "moved", "rate", "of ceil.", "sent", "rate", "of ceil.", "step ms", "tokens/s", "relative",
                "offload"},
      .rows = {}};
  const std::optional<double> place = ceilings.disk ? ceilings.disk : ceilings.host;
  const auto part = [](double rate, const std::optional<double>& ceiling) {
    return ceiling && rate > 0 ? fmt::format("{:.0f}%", 100 * rate / *ceiling) : "";
  };
  const auto rate_text = [](double rate) { return rate > 0 ? byte_text(static_cast<std::int64_t>(rate)) + "/s" : ""; };
  for (const ComparedLever& one : comparison.levers) {
    const std::int64_t moved = moved_one_way(one.plan.moved_in_all()), sent = sent_of(one);
    const double moving = rate_of(one, moved), sending = rate_of(one, sent);
    const std::optional<double> relative = comparison.relative(one);
    table.rows.push_back({names.of(one), moved > 0 ? byte_text(moved) : "", rate_text(moving), part(moving, place),
                          sent > 0 ? byte_text(sent) : "", rate_text(sending), part(sending, ceilings.messages),
                          one.ran ? fmt::format("{:.1f}", one.ran->step_seconds() * 1e3) : "not run",
                          one.ran ? grouped_digits(static_cast<std::int64_t>(one.ran->tokens_a_second())) : "",
                          relative ? fmt::format("{:.3f}", *relative) : "",
                          !one.needed            ? ""
                          : !one.why_not.empty() ? "not enough"
                          : *one.needed          ? "needed"
                                                 : "not needed"});
  }
  table.drop_empty_columns();
  return table;
}

std::string ceilings_text(const LeverCeilings& ceilings) {
  std::string out;
  const auto say = [&](const std::optional<double>& rate, std::string_view what) {
    if (rate)
      out += fmt::format("{}{}/s {}", out.empty() ? "" : "; ", byte_text(static_cast<std::int64_t>(*rate)), what);
  };
  say(ceilings.disk, "each way of reading and writing the disk at once");
  say(ceilings.host, "each way between the GPU and its host, both at once");
  say(ceilings.messages, "sent by a rank of an all-reduce of 16 MiB");
  return out.empty() ? "" : fmt::format("ceilings, measured before: {}.\n", out);
}

Json lever_json(const LeverComparison& comparison, const ComparedLever& one) {
  Json tags = Json::object();
  for (int t = 0; t < kTags; ++t)
    if (const std::int64_t bytes = one.plan.peaks[static_cast<std::size_t>(t)]; bytes > 0)
      tags[std::string(name_of(static_cast<Tag>(t)))] = bytes;
  const std::optional<double> relative = comparison.relative(one);
  const auto measured = [&](const auto& value) { return one.ran ? Json(value()) : Json(); };
  return {{"name", one.lever.name()},
          {"set", one.lever.changes},
          {"changes_numbers", one.lever.changes_numbers},
          {"fits", one.why_not.empty()},
          {"why_not", one.why_not.empty() ? Json() : Json(one.why_not)},
          {"offload_needed", one.needed ? Json(*one.needed) : Json()},
          {"ok", measured([&] { return one.ran->ok(); })},
          {"tags", tags},
          {"device_bytes", one.plan.peak},
          {"host_bytes", one.plan.host},
          {"disk_bytes", one.plan.disk},
          {"moved_bytes", moved_one_way(one.plan.moved_in_all())},
          {"sent_bytes", sent_of(one)},
          {"measured_device_bytes", measured([&] { return one.ran->fullest_rank().peak; })},
          {"measured_host_bytes", measured([&] { return one.ran->fullest_rank().host; })},
          {"measured_disk_bytes", measured([&] { return one.ran->fullest_rank().disk; })},
          {"measured_moved_bytes", measured([&] { return moved_one_way(one.ran->fullest_rank().moved); })},
          {"step_seconds", measured([&] { return one.ran->step_seconds(); })},
          {"tokens_per_second", measured([&] { return one.ran->tokens_a_second(); })},
          {"relative", relative ? Json(*relative) : Json()},
          {"loss", measured([&] { return one.ran->loss; })}};
}

}  // namespace

std::string levers_text(const RunSpec& run, const LeverComparison& comparison, const LeversShown& shown) {
  std::string out = fmt::format(
      "{} parameters, {} samples of {} tokens per step, {}, layout {}; {} cores, {} steps{}\n",
      count_text(static_cast<double>(comparison.levers.front().plan.parameters)), run.train.global_batch, run.data.seq,
      name_of(run.precision.compute), run.layout == LayoutSpec{} ? "of one rank" : to_text(run.layout), shown.cores,
      shown.steps, shown.memory > 0 ? fmt::format("; a rank may take {}", byte_text(shown.memory)) : "");
  LeverNames names(!shown.markdown);
  for (const TextTable& table : {places_table(comparison, names), costs_table(comparison, shown.ceilings, names)})
    out += "\n" + (shown.markdown ? table.markdown() : table.plain());
  out += "\n" + names.legend() + ceilings_text(shown.ceilings);
  const ComparedLever* const first = comparison.first();
  if (first && first != &comparison.levers.front())
    out += fmt::format("relative: to {}, the first that fits.\n", first->lever.name());
  out +=
      "* other numbers are learned. Recomputation and offload change no bit; micro-batches and ZeRO 2 and 3 change "
      "the\n"
      "order of sums. offload: needed where the same without does not fit.\n"
      "plan =: predicted on meta and measured, equal to the byte, on the device, the host and the disk.\n";
  for (const ComparedLever& one : comparison.levers)
    if (!one.why_not.empty() && (shown.memory == 0 || one.plan.peak <= shown.memory))  // or the table says it
      out += fmt::format("not run: {}: {}\n", one.lever.name(), one.why_not);
  if (comparison.stopped) out += "stopped as asked\n";
  for (const ComparedLever& one : comparison.levers)
    if (one.ran && !one.ran->ok()) out += fmt::format("NOT AS PLANNED: {}\n", one.lever.name());
  return out;
}

std::string levers_json(const RunSpec& run, const LeverComparison& comparison, const LeversShown& shown) {
  Json levers = Json::array();
  for (const ComparedLever& one : comparison.levers) levers.push_back(lever_json(comparison, one));
  const auto rate = [](const std::optional<double>& value) { return value ? Json(*value) : Json(); };
  const Json all{{"ok", comparison.ok()},
                 {"complete", !comparison.stopped},
                 {"cores", shown.cores},
                 {"device", name_of(run.run.device)},
                 {"layout", to_text(run.layout)},
                 {"ranks", run.layout.ranks()},
                 {"precision", name_of(run.precision.compute)},
                 {"tokens_per_step", run.train.global_batch * run.data.seq},
                 {"steps", shown.steps},
                 {"memory_bytes", shown.memory > 0 ? Json(shown.memory) : Json()},
                 {"ceilings",
                  {{"disk_bytes_per_second", rate(shown.ceilings.disk)},
                   {"host_bytes_per_second", rate(shown.ceilings.host)},
                   {"sent_bytes_per_second", rate(shown.ceilings.messages)}}},
                 {"relative_to", comparison.first() ? Json(comparison.first()->lever.name()) : Json()},
                 {"levers", levers}};
  return all.dump(2) + "\n";
}

}  // namespace lockstep
