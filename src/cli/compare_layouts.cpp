#include "cli/compare_layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "cli/usage_error.h"
#include "spec/layout/layout_list.h"
#include "spec/layout/layout_toml.h"
#include "spec/text/text_input.h"
#include "spec/text/toml_fields.h"

namespace lockstep {

namespace {

// A named layout at this number of ranks, dp being what its other axes leave; where no number was asked for, unchanged.
// Nothing, and a fault, where they do not divide the ranks, or where it names a dp that makes another number of them.
std::optional<LayoutSpec> at_ranks(const NamedLayout& named, bool scales, const AskedRanks& asked, std::int64_t ranks,
                                   const LayoutFault& fail) {
  LayoutSpec layout = named.layout;
  if (!scales) {
    if (asked.count == 0 || layout.ranks() == ranks) return layout;
    if (named.says_dp)
      fail("dp", fmt::format("{} makes {} rank{}", to_text(layout), layout.ranks(), layout.ranks() == 1 ? "" : "s"),
           fmt::format("leave dp out, or {}{}", asked.other, layout.ranks()));
  }
  if (!spread_over(layout, ranks, asked.option, fail)) return std::nullopt;
  return layout;
}

void check(const RunSpec& run, const LayoutSpec& layout, const LayoutFault& fail) {
  check_layout(run.train.global_batch, layout, fail);
  check_model_layout(run.model, run.data.seq, layout, fail);
}

// With the messages of spec/layout/layout_spec.h.
std::optional<std::string> why_not(const RunSpec& run, const LayoutSpec& layout) {
  try {
    check(run, layout, [](std::string_view, const std::string& problem, const std::string&) { refuse(problem, ""); });
    return std::nullopt;
  } catch (const UserError& error) {
    return error.what();
  }
}

LayoutFault refusing(const std::string& what) {
  return [what](std::string_view, const std::string& problem, const std::string& remedy) {
    refuse(fmt::format("{}: {}", what, problem), remedy);
  };
}

// Those that are looked at closely. A mistake in one of them is refused.
std::vector<LayoutSpec> asked_layouts(const CompareSettings& s, const std::vector<NamedLayout>& named,
                                      const RunSpec& run, const AskedRanks& asked, std::int64_t ranks) {
  const std::string& option = asked.told;
  std::vector<LayoutSpec> all;
  if (named.empty()) all = usual_layouts(run, ranks);
  for (const LayoutSpec& layout : all) check(run, layout, refusing(option));
  for (const NamedLayout& one : named) {
    const LayoutFault fail = refusing(one.of_file ? fmt::format("{} {}", one.where, option) : option);
    const LayoutSpec layout = *at_ranks(one, !s.scale.empty(), asked, ranks, fail);
    const std::string where = fmt::format("{} {}", one.where, to_text(layout));
    check(run, layout, refusing(where));
    if (layout.ranks() > std::max<std::int64_t>(kMostComparedThreads, asked.count))
      refuse(fmt::format("{}: {} ranks, and one process has at most {}", where, layout.ranks(), kMostComparedThreads),
             "use fewer ranks here; `lockstep plan` says what more of them cost");
    all.push_back(layout);
  }
  return all;
}

}  // namespace

std::set<std::int64_t> rank_counts(const std::string& list) {
  std::set<std::int64_t> counts;
  for (std::size_t at = 0; !list.empty() && at <= list.size();) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    std::int64_t count = 0;
    const char* const end = list.data() + comma;
    const auto [stopped, error] = std::from_chars(list.data() + at, end, count);
    if (error != std::errc() || stopped != end || count < 1 || count > kMostComparedThreads)
      refuse(fmt::format("--scale {}: {} is no number of ranks from 1 to {}", quote_text(list),
                         quote_text(list.substr(at, comma - at)), kMostComparedThreads),
             "give numbers as in --scale 1,2,4,8");
    counts.insert(count);
    at = comma + 1;
  }
  return counts;
}

std::vector<NamedLayout> named_layouts(const CompareSettings& s) {
  std::vector<NamedLayout> all;
  const std::vector<std::string> sets = s.run.layout_sets();
  const auto says_dp = [&](const std::string& text) {
    return std::ranges::count(layout_items(text), "dp", &TomlItem::key) > 0 ||
           std::ranges::any_of(sets, [](const std::string& set) { return set.starts_with("layout.dp="); });
  };
  for (const std::string& text : s.layouts)
    all.push_back({.text = text, .where = "--layout", .layout = parse_layout(text, sets), .says_dp = says_dp(text)});
  if (!s.list) return all;
  for (const ListedLayout& one : read_layout_list(*s.list, sets))
    all.push_back({.text = one.text,
                   .where = one.where + ":",
                   .layout = one.layout,
                   .of_file = true,
                   .says_dp = says_dp(one.text)});
  return all;
}

std::vector<LayoutSpec> compared_layouts(const CompareSettings& s, const std::vector<NamedLayout>& named,
                                         const RunSpec& run, const AskedRanks& ranks, CompareAsked& asked) {
  std::vector<LayoutSpec> all;
  const auto add = [&](const LayoutSpec& layout) {
    if (std::ranges::find(all, layout) == all.end()) all.push_back(layout);
  };
  for (const LayoutSpec& layout : asked_layouts(s, named, run, ranks, asked.ranks)) add(layout);
  for (const std::int64_t count : asked.scale) {
    if (count == asked.ranks) continue;
    const auto skip = [&](std::string_view, const std::string& problem, const std::string&) {
      asked.skipped[count].insert(problem);
    };
    std::vector<LayoutSpec> wanted;
    if (count == 1 || named.empty()) wanted = usual_layouts(run, count);
    for (const NamedLayout& one : named)
      if (count > 1)
        if (const auto layout = at_ranks(one, true, ranks, count, skip)) wanted.push_back(*layout);
    for (const LayoutSpec& layout : wanted) {
      if (const auto why = why_not(run, layout))
        asked.skipped[count].insert(*why);
      else
        add(layout);
    }
  }
  return all;
}

}  // namespace lockstep
