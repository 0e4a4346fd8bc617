#include "cli/compare_view.h"

#include <fmt/color.h>

#include <algorithm>
#include <array>
#include <functional>

#include "cli/text_table.h"
#include "telemetry/number_text.h"

namespace lockstep {

namespace {

std::string_view head_of(Tag tag) {  // short: nine columns of bytes share a line
  constexpr std::array<std::string_view, kTags> kHeads = {"params", "gathered", "grads", "optim.",
                                                          "activ.", "comm.",    "work",  "data"};
  return kHeads[static_cast<std::size_t>(tag)];
}

std::string_view head_of(CommOp op) {
  return op == CommOp::reduce_scatter ? "red.sc." : op == CommOp::broadcast ? "bcast" : name_of(op);
}

// The unit in which all figures of a table are given: the largest in which the largest of them has two digits.
struct ByteUnit {
  explicit ByteUnit(std::int64_t largest) {
    constexpr std::pair<const char*, double> kUnits[] = {{"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}};
    for (const auto& [unit, bytes] : kUnits)
      if (unit == kUnits[0].first || static_cast<double>(largest) >= 10 * bytes) name = unit, size = bytes;
    decimals = static_cast<double>(largest) >= 1000 * size ? 1 : 2;
  }
  std::string text(double bytes) const { return bytes == 0 ? "" : fmt::format("{:.{}f}", bytes / size, decimals); }

  std::string name;
  double size = 1;
  int decimals = 2;
};

// Those that are looked at closely: at one number of ranks where several were asked for.
std::vector<const ComparedLayout*> shown(const Comparison& comparison, const CompareAsked& asked) {
  std::vector<const ComparedLayout*> all;
  for (const ComparedLayout& one : comparison.layouts)
    if (asked.scale.empty() || one.layout.ranks() == asked.ranks) all.push_back(&one);
  return all;
}

// A layout's name, less what all of them have and the header says: so many ranks, as many as tp leaves being dp.
class Names {
 public:
  Names(const Comparison& comparison, bool scaling) : scaling_(scaling) {
    const auto same = [&](auto key) {
      return std::ranges::all_of(comparison.layouts, [&](const ComparedLayout& one) {
        return std::invoke(key, one.layout) == std::invoke(key, comparison.layouts.front().layout);
      });
    };
    names_ranks_ = !scaling && !same(&LayoutSpec::ranks);
    names_micro_ = !same(&LayoutSpec::micro);
    names_uneven_ = !same(&LayoutSpec::uneven);
    names_reduce_ = !same(&LayoutSpec::reduce);
  }
  bool ranks_differ() const { return names_ranks_; }
  bool micro_differs() const { return names_micro_; }
  std::string of(LayoutSpec layout) const {
    const bool alone = layout.ranks() == 1;
    if (scaling_ || (!names_ranks_ && layout.tp == 1 && layout.pp == 1)) layout.dp = 1;
    if (!names_micro_) layout.micro = 1;
    if (!names_uneven_) layout.uneven = Switch::off;
    if (!names_reduce_) layout.reduce = ReduceKind::canonical;
    if (layout == LayoutSpec{}) return alone ? "one rank" : "ddp";
    return to_text(layout);
  }

 private:
  bool scaling_, names_ranks_, names_micro_, names_uneven_, names_reduce_;
};

constexpr std::string_view kAsPlanned = "=";
constexpr std::string_view kNotAsPlanned = "≠ NOT AS PLANNED";

using Shown = std::vector<const ComparedLayout*>;

TextTable memory_table(const Shown& all, const Names& names) {
  std::int64_t largest = 0;
  for (const ComparedLayout* one : all) largest = std::max(largest, one->fullest_rank().peak);
  const ByteUnit unit(largest);
  TextTable table{.title = fmt::format("memory, {}: the most that the fullest rank held", unit.name),
                  .heads = {"layout"},
                  .rows = {}};
  for (int t = 0; t < kTags; ++t) table.heads.emplace_back(head_of(static_cast<Tag>(t)));
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

TextTable message_table(const Shown& all, const Names& names) {
  TextTable table{.title = fmt::format("messages a step, in Ψ = {} stored parameters: what the fullest sender sends",
                                       grouped_digits(all.front()->sender_plan.stored)),
                  .heads = {"layout"},
                  .rows = {}};
  for (int op = 0; op < kCommOps; ++op) table.heads.emplace_back(head_of(static_cast<CommOp>(op)));
  table.heads.insert(table.heads.end(), {"all", "along", "bytes", "calls", "plan"});
  for (const ComparedLayout* one : all) {
    const StepMessages& sent = one->sender_rank().messages;
    const auto psi = [&](std::int64_t elements) {
      if (elements == 0) return std::string();
      return fmt::format("{:.3f}", static_cast<double>(elements) / static_cast<double>(one->sender_plan.stored));
    };
    auto& row = table.rows.emplace_back(std::vector{names.of(one->layout)});
    for (int op = 0; op < kCommOps; ++op) row.push_back(psi(sent.sent(static_cast<CommOp>(op))));
    row.push_back(psi(sent.total().sent));
    std::string along;  // the axes but dp
    for (const MeshAxis axis : {MeshAxis::pp, MeshAxis::tp})
      if (const auto over = static_cast<double>(sent.total(axis).sent); over > 0)
        along += fmt::format("{}{} {:.0f}%", along.empty() ? "" : " ", name_of(axis),
                             100 * over / static_cast<double>(sent.total().sent));
    row.push_back(along);
    row.push_back(sent.total().sent > 0 ? byte_text(sent.total().bytes_sent) : "");
    row.push_back(sent.total().sent > 0 ? grouped_digits(sent.total().calls) : "");
    row.emplace_back(one->messages_as_planned() ? kAsPlanned : kNotAsPlanned);
  }
  table.drop_empty_columns();
  return table;
}

TextTable time_table(const Shown& all, const Names& names) {
  TextTable table{.title = "time a step: medians over steps, means over ranks",
                  .heads = {"layout", "step ms", "exposed ms", "of it", "tokens/s"},
                  .rows = {}};
  for (const ComparedLayout* one : all) {
    const double step = one->step_seconds(), exposed = one->exposed_seconds();
    table.rows.push_back({names.of(one->layout), fmt::format("{:.1f}", step * 1e3),
                          fmt::format("{:.1f}", exposed * 1e3), fmt::format("{:.0f}%", 100 * exposed / step),
                          grouped_digits(static_cast<std::int64_t>(one->tokens_a_second()))});
  }
  return table;
}

TextTable scaling_table(const Comparison& comparison, const CompareAsked& asked, const Names& names) {
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

// Every figure that is not what was planned, one a line.
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
  for (int op = 0; op < kCommOps; ++op)
    say(one.sender, fmt::format("elements sent by {}", name_of(static_cast<CommOp>(op))),
        one.sender_plan.messages.sent(static_cast<CommOp>(op)),
        one.sender_rank().messages.sent(static_cast<CommOp>(op)));
  if (out.empty() && !one.ok())
    out = fmt::format("NOT AS PLANNED: {}: {}\n", to_text(one.layout),
                      one.memory_as_planned() ? "calls, types or numbers of messages" : "bytes by unit");
  return out;
}

std::string header(const RunSpec& run, const Comparison& comparison, const CompareAsked& asked, const Names& names) {
  const ComparedLayout& one = comparison.layouts.front();
  const auto counted = [](std::int64_t n, std::string_view what) {
    return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
  };
  std::string out = fmt::format("{} parameters, {} of {} tokens a step{}, {}; ",
                                count_text(static_cast<double>(one.fullest_plan.parameters)),
                                counted(run.train.global_batch, "sample"), run.data.seq,
                                names.micro_differs()   ? ""
                                : one.layout.micro == 1 ? " in 1 micro-batch"
                                                        : fmt::format(" in {} micro-batches", one.layout.micro),
                                name_of(run.precision.compute));
  if (!names.ranks_differ())
    out += fmt::format("{} of {} on ", counted(asked.ranks, "rank"), counted(one.threads, "thread"));
  out += fmt::format("{}, {}\n", counted(asked.cores, "core"), counted(asked.steps, "step"));
  std::int64_t most = 0;
  for (const ComparedLayout& any : comparison.layouts) most = std::max(most, any.layout.ranks());
  if (most > asked.cores)
    out +=
        fmt::format("{} ranks share {}: a step's time is that of all of them{}.\n", most, counted(asked.cores, "core"),
                    asked.scale.empty() ? "" : ", and efficiency is against the cores there are");
  return out;
}

constexpr std::string_view kLegend =
    "plan =: predicted on meta and measured, equal to the byte. exposed: a rank stood waiting for messages. Numbers,\n"
    "such as loss and norm, are not counted. ddp: everything everywhere, overlap=on. zero=2 and 3: grad_sync=micro.\n"
    "along: how much of all goes between stages (pp), and between ranks that cut layers (tp).\n";

}  // namespace

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
  const Shown all = shown(comparison, asked);
  const auto add = [&](const TextTable& table) {
    out += "\n" + (style == CompareStyle::markdown ? table.markdown() : table.plain());
  };
  if (!comparison.layouts.empty()) {
    const Names names(comparison, !asked.scale.empty());
    out += header(run, comparison, asked, names);
    if (!all.empty()) {
      add(memory_table(all, names));
      add(message_table(all, names));
      add(time_table(all, names));
    }
    if (!asked.scale.empty()) add(scaling_table(comparison, asked, names));
    out += "\n" + std::string(kLegend);
  }
  for (const auto& [layout, why] : comparison.left_out) out += fmt::format("left out: {}: {}\n", to_text(layout), why);
  for (const auto& [ranks, reasons] : asked.skipped)
    for (const std::string& why : reasons) out += fmt::format("left out: {} ranks: {}\n", ranks, why);
  if (comparison.stopped)
    out += comparison.layouts.size() + comparison.left_out.size() < asked.layouts
               ? fmt::format("stopped as asked, after {} of {} layouts\n", comparison.layouts.size(), asked.layouts)
               : fmt::format("stopped as asked, before all {} steps\n", asked.steps);
  for (const ComparedLayout& one : comparison.layouts) {
    const std::string words = differences(one);
    if (words.empty()) continue;
    out += style == CompareStyle::colour
               ? fmt::format(fmt::emphasis::bold | fmt::fg(fmt::terminal_color::red), "{}", words)
               : words;
  }
  return out;
}

}  // namespace lockstep
