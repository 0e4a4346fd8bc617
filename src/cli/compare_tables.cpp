#include "cli/compare_tables.h"

#include <algorithm>
#include <array>
#include <functional>

#include "telemetry/number_text.h"

namespace lockstep {

namespace {

std::string_view head_of(CommOp op) {
  return op == CommOp::reduce_scatter ? "red.sc." : op == CommOp::broadcast ? "bcast" : name_of(op);
}

constexpr std::string_view kAsPlanned = "=";
constexpr std::string_view kNotAsPlanned = "≠ NOT AS PLANNED";

TextTable memory_table(const ShownLayouts& all, const LayoutNames& names) {
  std::int64_t largest = 0;
  for (const ComparedLayout* one : all) largest = std::max(largest, one->fullest_rank().peak);
  const ByteUnit unit(largest);
  TextTable table{.title = fmt::format("memory, {}: the most that the fullest rank held", unit.name),
                  .heads = {"layout"},
                  .rows = {}};
  for (int t = 0; t < kTags; ++t) table.heads.emplace_back(short_head_of(static_cast<Tag>(t)));
  table.heads.insert(table.heads.end(), {"fullest", "mean", "plan"});
  for (const ComparedLayout* one : all) {
    auto& row = table.rows.emplace_back(std::vector{names.of(one->layout)});
    for (const std::int64_t bytes : one->fullest_rank().peaks) row.push_back(unit.text(static_cast<double>(bytes)));
    row.push_back(unit.text(static_cast<double>(one->fullest_rank().peak)));
    row.push_back(unit.text(one->mean_peak()));
    row.emplace_back(one->memory_as_planned() ? kAsPlanned : kNotAsPlanned);
  }
  table.drop_empty_columns();
  return table;
}

TextTable message_table(const ShownLayouts& all, const LayoutNames& names) {
  TextTable table{.title = fmt::format("messages per step, in Ψ = {} stored parameters: what the fullest sender sends",
                                       grouped_digits(all.front()->sender_plan.stored)),
                  .heads = {"layout"},
                  .rows = {}};
  for (int op = 0; op < kCommOps; ++op) table.heads.emplace_back(head_of(static_cast<CommOp>(op)));
  table.heads.insert(table.heads.end(), {"all", "bytes", "calls", "plan"});
  for (const ComparedLayout* one : all) {
    const StepMessages& sent = one->sender_rank().messages;
    const auto psi = [&](std::int64_t elements) {
      if (elements == 0) return std::string();
      return fmt::format("{:.3f}", static_cast<double>(elements) / static_cast<double>(one->sender_plan.stored));
    };
    auto& row = table.rows.emplace_back(std::vector{names.of(one->layout)});
    for (int op = 0; op < kCommOps; ++op) row.push_back(psi(sent.sent(static_cast<CommOp>(op))));
    row.push_back(psi(sent.total().sent));
    row.push_back(sent.total().sent > 0 ? byte_text(sent.total().bytes_sent) : "");
    row.push_back(sent.total().sent > 0 ? grouped_digits(sent.total().calls) : "");
    row.emplace_back(one->messages_as_planned() ? kAsPlanned : kNotAsPlanned);
  }
  table.drop_empty_columns();
  return table;
}

// Which ranks they are between. "41.3 MiB in 2": bytes and calls, of which those that only receive send nothing.
TextTable axis_table(const ShownLayouts& all, const LayoutNames& names) {
  TextTable table{.title = "messages per step by axis: bytes that the fullest sender sends, and calls",
                  .heads = {"layout"},
                  .rows = {}};
  for (const MeshAxis axis : kMeshAxes) table.heads.emplace_back(name_of(axis));
  table.heads.insert(table.heads.end(), {"numbers", "plan"});
  for (const ComparedLayout* one : all) {
    const StepMessages& sent = one->sender_rank().messages;
    const auto cell = [](const SentMessages& of) {
      return of.calls == 0 ? "" : fmt::format("{} in {}", byte_text(of.bytes_sent), grouped_digits(of.calls));
    };
    auto& row = table.rows.emplace_back(std::vector{names.of(one->layout)});
    for (const MeshAxis axis : kMeshAxes) row.push_back(cell(sent.total(axis)));
    row.push_back(cell(sent.numbers));
    row.emplace_back(one->messages_as_planned() ? kAsPlanned : kNotAsPlanned);
  }
  table.drop_empty_columns();
  return table;
}

TextTable time_table(const ShownLayouts& all, const LayoutNames& names, bool repeats) {
  const bool planned = std::ranges::any_of(all, [](const ComparedLayout* one) { return one->forecast.has_value(); });
  TextTable table{
      .title =
          fmt::format("time per step: medians over steps, means over ranks{}", planned ? "; each beside its plan" : ""),
      .heads = {"layout", "step ms", "plan", "off", "repeats", "exp. ms", "plan", "bubble", "plan", "tokens/s", "plan"},
      .rows = {}};
  const auto ms = [](double seconds) { return fmt::format("{:.1f}", seconds * 1e3); };
  const auto share = [](const std::optional<double>& bubble) {
    return bubble ? fmt::format("{:.1f}%", *bubble * 100) : "-";
  };
  const auto count = [](double rate) { return grouped_digits(static_cast<std::int64_t>(rate)); };
  for (const ComparedLayout* one : all) {
    const auto plan_of = [&](const auto& text) { return one->forecast ? text(*one->forecast) : std::string(); };
    table.rows.push_back(
        {names.of(one->layout), ms(one->step_seconds()),
         plan_of([&](const LayoutForecast& f) { return ms(f.step_seconds); }),
         plan_of([&](const LayoutForecast&) { return fmt::format("{:+.0f}%", 100 * one->forecast_error()); }),
         repeats ? fmt::format("{:.1f}%", 100 * one->repeatability) : "",
         one->waits_measured ? ms(one->exposed_seconds()) : "",
         plan_of([&](const LayoutForecast& f) { return ms(f.exposed_seconds); }), share(one->bubble),
         plan_of([&](const LayoutForecast& f) { return share(f.bubble); }), count(one->tokens_a_second()),
         plan_of([&](const LayoutForecast&) { return count(one->forecast_tokens_a_second()); })});
  }
  table.drop_empty_columns();
  return table;
}

}  // namespace

std::string_view short_head_of(Tag tag) {
  constexpr std::array<std::string_view, kTags> kHeads = {"params", "gathered", "grads", "optim.",
                                                          "activ.", "comm.",    "work",  "data"};
  return kHeads[static_cast<std::size_t>(tag)];
}

ByteUnit::ByteUnit(std::int64_t largest) {
  constexpr std::pair<const char*, double> kUnits[] = {{"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}};
  for (const auto& [unit, bytes] : kUnits)
    if (unit == kUnits[0].first || static_cast<double>(largest) >= 10 * bytes) name = unit, size = bytes;
  decimals = static_cast<double>(largest) >= 1000 * size ? 1 : 2;
}

std::string ByteUnit::text(double bytes) const {
  return bytes == 0 ? "" : fmt::format("{:.{}f}", bytes / size, decimals);
}

LayoutNames::LayoutNames(const Comparison& comparison, bool scaling, bool shortens) : scaling_(scaling) {
  const auto same = [&](auto key) {
    return std::ranges::all_of(comparison.layouts, [&](const ComparedLayout& one) {
      return std::invoke(key, one.layout) == std::invoke(key, comparison.layouts.front().layout);
    });
  };
  names_ranks_ = !scaling && !same(&LayoutSpec::ranks);
  names_micro_ = !same(&LayoutSpec::micro);
  names_uneven_ = !same(&LayoutSpec::uneven);
  names_reduce_ = !same(&LayoutSpec::reduce);
  for (const ComparedLayout& one : comparison.layouts)
    if (const std::string name = whole(one.layout); shortens && name.size() > kLongestName)
      if (std::ranges::find(long_names_, name) == long_names_.end()) long_names_.push_back(name);
}

std::string LayoutNames::whole(LayoutSpec layout) const {
  const bool alone = layout.ranks() == 1;
  if (scaling_ || (!names_ranks_ && layout.dp == layout.ranks())) layout.dp = 1;
  if (!names_micro_) layout.micro = 1;
  if (!names_uneven_) layout.uneven = Switch::off;
  if (!names_reduce_) layout.reduce = ReduceKind::canonical;
  if (layout == LayoutSpec{}) return alone ? "one rank" : "ddp";
  return to_text(layout);
}

std::string LayoutNames::of(const LayoutSpec& layout) const {
  const std::string name = whole(layout);
  const auto at = std::ranges::find(long_names_, name);
  return at == long_names_.end() ? name : fmt::format("({})", at - long_names_.begin() + 1);
}

std::string LayoutNames::legend() const {
  std::string out;
  for (std::size_t i = 0; i < long_names_.size(); ++i) out += fmt::format("({}): {}\n", i + 1, long_names_[i]);
  return out;
}

std::vector<TextTable> cost_tables(const ShownLayouts& all, const LayoutNames& names, bool repeats) {
  return {memory_table(all, names), message_table(all, names), axis_table(all, names), time_table(all, names, repeats)};
}

TextTable brief_table(const ShownLayouts& all, const LayoutNames& names) {
  TextTable table{.title = "the same training under each layout",
                  .heads = {"layout", "ranks", "loss", "memory", "predicted", "messages", "sent", "plan"},
                  .rows = {}};
  for (const ComparedLayout* one : all) {
    const SentMessages sent = one->sender_rank().messages.total();
    table.rows.push_back({names.of(one->layout), fmt::format("{}", one->layout.ranks()),
                          fmt::format("{:.10f}", one->loss), grouped_digits(one->fullest_rank().peak),
                          grouped_digits(one->fullest_plan.peak), sent.calls > 0 ? grouped_digits(sent.calls) : "",
                          sent.calls > 0 ? byte_text(sent.bytes_sent) : "",
                          std::string(one->ok() ? kAsPlanned : kNotAsPlanned)});
  }
  table.drop_empty_columns();
  return table;
}

TextTable scaling_table(const Comparison& comparison, const CompareAsked& asked, const LayoutNames& names) {
  TextTable table{.title = "tokens/s by ranks at the same global batch, and efficiency against one rank",
                  .heads = {"layout"},
                  .rows = {}};
  for (const std::int64_t count : asked.scale) {
    table.heads.push_back(count == 1 ? "1 rank" : fmt::format("{} ranks", count));
    if (count > 1) table.heads.emplace_back("eff.");
  }
  const auto row_of = [&](const std::string& name) -> std::vector<std::string>& {
    for (auto& row : table.rows)
      if (row.front() == name) return row;
    auto& row = table.rows.emplace_back(table.heads.size());
    row.front() = name;
    return row;
  };
  for (const std::int64_t count : asked.scale)  // one rank first
    for (const ComparedLayout& one : comparison.layouts) {
      if (one.layout.ranks() != count) continue;
      const auto before = static_cast<std::size_t>(std::distance(asked.scale.begin(), asked.scale.find(count)));
      const std::size_t column = count == 1 ? 1 : 2 * before;
      auto& row = row_of(names.of(one.layout));
      row[column] = grouped_digits(static_cast<std::int64_t>(one.tokens_a_second()));
      if (const auto e = efficiency(comparison, one, asked.cores); e && count > 1)
        row[column + 1] = fmt::format("{:.0f}%", *e * 100);
    }
  table.drop_empty_columns();
  return table;
}

}  // namespace lockstep
