#include "cli/plan_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "cli/text_table.h"
#include "spec/layout/layout_toml.h"
#include "telemetry/number_text.h"

namespace lockstep {

namespace {

constexpr std::size_t kMostPhases = 40, kFirstPhases = 20;  // rows of a table
constexpr std::size_t kMostTensors = 15;

std::int64_t bytes_of(const StepMemory::ByTag& bytes, int tag) { return bytes[static_cast<std::size_t>(tag)]; }

// What is in use at the peak, with blocks, which are alike, taken together, and micro-batches too.
struct TensorGroup {
  Tag tag;
  std::string what;  // "block inner", "head logits"
  int count = 0;     // of blocks and micro-batches
  std::int64_t bytes = 0;
  std::string text() const { return count > 1 ? fmt::format("{} x {}", what, count) : what; }
};

std::vector<TensorGroup> tensor_groups(const MemoryTimeline& line) {
  std::vector<TensorGroup> groups;
  for (const TensorInUse& one : line.at_peak) {
    std::string what = one.unit.empty() ? "(all)" : one.unit;
    if (what.starts_with("block.")) what.erase(5, what.find_first_not_of("0123456789", 6) - 5);
    if (!one.name.empty()) what += " " + one.name;
    const auto known = std::ranges::find_if(
        groups, [&](const TensorGroup& group) { return group.tag == one.tag && group.what == what; });
    TensorGroup& group = known != groups.end() ? *known : groups.emplace_back(TensorGroup{one.tag, what});
    group.count += std::max(one.micros, 1);
    group.bytes += one.bytes;
  }
  std::ranges::stable_sort(groups, std::greater<>(), &TensorGroup::bytes);
  return groups;
}

// Of the action at which it has most in use.
std::size_t fullest_of(const MemoryPhase& phase, const MemoryTimeline& line) {
  std::size_t fullest = phase.first;
  for (std::size_t i = phase.first; i <= phase.last; ++i)
    if (line.in_use(i) > line.in_use(fullest)) fullest = i;
  return fullest;
}

TextTable phase_table(const MemoryTimeline& line) {
  TextTable table{.title = "by phase, the most that is in use at once (F forward, B backward, and the micro-batch)",
                  .heads = {"phase", "activation", "gathered", "all", "at"},
                  .rows = {}};
  const std::vector<MemoryPhase> phases = memory_phases(line.actions);
  std::size_t left_out = 0;
  for (std::size_t p = 0; p < phases.size(); ++p) {
    const std::size_t at = fullest_of(phases[p], line);
    const bool peak = line.peak >= phases[p].first && line.peak <= phases[p].last;
    if (phases.size() > kMostPhases && p >= kFirstPhases && p + 1 < phases.size() && !peak) {
      ++left_out;
      continue;
    }
    const auto cell = [&](Tag tag) {
      const std::int64_t bytes = bytes_of(line.memory.in_use[at], static_cast<int>(tag));
      return bytes > 0 ? byte_text(bytes) : "";
    };
    table.rows.push_back({phases[p].name, cell(Tag::activation), cell(Tag::gathered), byte_text(line.in_use(at)),
                          text_of(line.actions[at], line.units) + (peak ? "  < peak" : "")});
  }
  if (left_out > 0) table.rows.push_back({fmt::format("{} more", left_out), "", "", "", ""});
  table.drop_empty_columns();
  return table;
}

TextTable tag_table(const MemoryTimeline& line) {
  TextTable table{.title = "by tag, at the peak", .heads = {"tag", "in use", "held", "bytes held"}, .rows = {}};
  const StepMemory::ByTag held = line.most_held();
  for (int t = 0; t < kTags; ++t)
    if (bytes_of(held, t) > 0)
      table.rows.push_back({std::string(name_of(static_cast<Tag>(t))),
                            byte_text(bytes_of(line.memory.in_use[line.peak], t)), byte_text(bytes_of(held, t)),
                            grouped_digits(bytes_of(held, t))});
  table.rows.push_back({"all", byte_text(line.in_use(line.peak)), byte_text(line.most()), grouped_digits(line.most())});
  return table;
}

TextTable tensor_table(const MemoryTimeline& line) {
  TextTable table{.title = "what makes the peak, the largest first (x 8: of 8 blocks and micro-batches in all)",
                  .heads = {"tensor", "tag", "bytes", "share"},
                  .rows = {}};
  std::int64_t rest = 0;
  const auto all = static_cast<double>(line.in_use(line.peak));
  const auto add = [&](const std::string& what, std::string_view tag, std::int64_t bytes) {
    table.rows.push_back(
        {what, std::string(tag), byte_text(bytes), fmt::format("{:.1f}%", 100 * static_cast<double>(bytes) / all)});
  };
  const std::vector<TensorGroup> groups = tensor_groups(line);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (i < kMostTensors)
      add(groups[i].text(), name_of(groups[i].tag), groups[i].bytes);
    else
      rest += groups[i].bytes;
  }
  if (rest > 0) add(fmt::format("{} more", groups.size() - kMostTensors), "", rest);
  return table;
}

std::string rank_text(const RunSpec& spec, const MemoryTimeline& line) {
  return spec.layout.ranks() == 1 ? "" : fmt::format(" of rank {}", line.rank);
}

}  // namespace

std::vector<MemoryPhase> memory_phases(const std::vector<Action>& actions) {
  using Kind = MemoryPhase::Kind;
  std::vector<MemoryPhase> phases;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const Action& a = actions[i];
    const bool ends = a.kind == ActionKind::norm;
    if (is_phase(a.kind) || ends) {
      const Kind kind = ends ? Kind::update : a.kind == ActionKind::forward ? Kind::forward : Kind::backward;
      const std::string name = ends ? "update" : fmt::format("{}{}", kind == Kind::forward ? "F" : "B", a.micro);
      if (phases.empty() || phases.back().name != name)
        phases.push_back({.kind = kind, .name = name, .first = phases.empty() ? 0 : i, .last = i});
    }
    if (!phases.empty()) phases.back().last = i;
  }
  return phases;
}

std::string timeline_text(const RunSpec& spec, const MemoryTimeline& line) {
  std::string out = fmt::format(
      "memory over one step{}, {}\n{} = {} bytes are held from the first step to the last; at most {} of them are in "
      "use at once,\nat {}\n\n",
      rank_text(spec, line), to_text(spec.layout), byte_text(line.most()), grouped_digits(line.most()),
      byte_text(line.in_use(line.peak)), text_of(line.actions[line.peak], line.units));
  return out + phase_table(line).plain() + "\n" + tag_table(line).plain() + "\n" + tensor_table(line).plain();
}

std::string timeline_svg(const RunSpec& spec, const MemoryTimeline& line) {
  MemoryTimelinePicture picture{
      .title = fmt::format("Memory over one step{}: {}", rank_text(spec, line), to_text(spec.layout)),
      .subtitle = fmt::format("{} parameters, {} samples of {} tokens, {}; {} = {} bytes held, from one action to the "
                              "next; F forward, B backward of a micro-batch.",
                              count_text(static_cast<double>(parameter_count(spec.model))), spec.train.global_batch,
                              spec.data.seq, name_of(spec.precision.compute), byte_text(line.most()),
                              grouped_digits(line.most())),
      .phases = memory_phases(line.actions),
      .peak = line.peak};
  // What changes is drawn on top of what does not.
  std::vector<int> tags;
  for (int t = 0; t < kTags; ++t) tags.push_back(t);
  std::ranges::stable_partition(
      tags, [](int t) { return static_cast<Tag>(t) != Tag::activation && static_cast<Tag>(t) != Tag::gathered; });
  std::vector<std::size_t> band_of(kTags);
  for (const int t : tags) {
    band_of[static_cast<std::size_t>(t)] = picture.bands.size();
    auto& band = picture.bands.emplace_back();
    band.name = name_of(static_cast<Tag>(t));
    for (const StepMemory::ByTag& bytes : line.memory.in_use) band.bytes.push_back(bytes_of(bytes, t));
  }
  for (std::size_t i = 0; i < line.actions.size(); ++i) {
    picture.actions.push_back(text_of(line.actions[i], line.units));
    std::int64_t held = 0;
    for (const std::int64_t bytes : line.held[i]) held += bytes;
    picture.held.push_back(held);
  }
  const std::vector<TensorGroup> groups = tensor_groups(line);
  for (std::size_t i = 0; i < std::min(kMostTensors, groups.size()); ++i)
    picture.tensors.push_back({fmt::format("{}, {}", name_of(groups[i].tag), groups[i].text()),
                               band_of[static_cast<std::size_t>(groups[i].tag)], groups[i].bytes});
  return memory_timeline_picture(picture);
}

}  // namespace lockstep
