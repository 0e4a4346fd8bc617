#include "cli/compare.h"

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/error.h"
#include "cli/compare_view.h"
#include "cli/launch.h"
#include "cli/run_arguments.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "cli/usage_error.h"
#include "plan/comparison.h"
#include "spec/layout/layout_list.h"
#include "spec/layout/layout_toml.h"
#include "spec/text/text_input.h"
#include "spec/text/toml_fields.h"
#include "train/pinning.h"

namespace lockstep {

namespace {

constexpr int kMostThreads = 256;        // threads of one process
constexpr std::int64_t kUsualRanks = 4;  // where the run file names one rank

struct CompareSettings {
  RunArguments run;
  std::vector<std::string> layouts;
  std::optional<std::string> list;  // a file of them
  std::string scale;
  std::int64_t ranks = 0, steps = ComparisonOptions{}.steps;
  bool json = false, markdown = false, brief = false;
};

std::set<std::int64_t> rank_counts(const std::string& list) {
  std::set<std::int64_t> counts;
  for (std::size_t at = 0; !list.empty() && at <= list.size();) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    std::int64_t count = 0;
    const char* const end = list.data() + comma;
    const auto [stopped, error] = std::from_chars(list.data() + at, end, count);
    if (error != std::errc() || stopped != end || count < 1 || count > kMostThreads)
      refuse(fmt::format("--scale {}: {} is no number of ranks from 1 to {}", quote_text(list),
                         quote_text(list.substr(at, comma - at)), kMostThreads),
             "give numbers as in --scale 1,2,4,8");
    counts.insert(count);
    at = comma + 1;
  }
  return counts;
}

RunSpec read(const CompareSettings& s) {
  if (launched_as_one_of_many())
    refuse("compare starts its ranks itself, as threads of one process", "run it without a launcher");
  RunSpec run = s.layouts.empty() && !s.list ? s.run.read() : s.run.read_for_any_layout();
  if (run.run.device != RunDevice::cpu)
    refuse(fmt::format("compare trains on the cpu, and run.device = \"{}\"", name_of(run.run.device)),
           "use --set run.device=cpu");
  return run;
}

// A layout that was asked for by name, and where: a mistake names it.
struct Named {
  std::string text, where;
  LayoutSpec layout;
  bool of_file = false, says_dp = false;
};

std::vector<Named> named_layouts(const CompareSettings& s) {
  std::vector<Named> all;
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

// A named layout at this number of ranks, dp being what its other axes leave; without --ranks and --scale, unchanged.
// Nothing, and a fault, where they do not divide the ranks, or where it names a dp that makes another number of them.
std::optional<LayoutSpec> at_ranks(const Named& named, const CompareSettings& s, std::int64_t ranks,
                                   const LayoutFault& fail) {
  LayoutSpec layout = named.layout;
  if (s.scale.empty()) {
    if (s.ranks == 0 || layout.ranks() == ranks) return layout;
    if (named.says_dp)
      fail("dp", fmt::format("{} makes {} rank{}", to_text(layout), layout.ranks(), layout.ranks() == 1 ? "" : "s"),
           fmt::format("leave dp out, or use --ranks {}", layout.ranks()));
  }
  if (!spread_over(layout, ranks, "--ranks ", fail)) return std::nullopt;
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
std::vector<LayoutSpec> asked_layouts(const CompareSettings& s, const std::vector<Named>& named, const RunSpec& run,
                                      std::int64_t ranks) {
  const std::string option = fmt::format("--ranks {}", ranks);
  std::vector<LayoutSpec> all;
  if (named.empty()) all = usual_layouts(run, ranks);
  for (const LayoutSpec& layout : all) check(run, layout, refusing(option));
  for (const Named& one : named) {
    const LayoutFault fail = refusing(one.of_file ? fmt::format("{} {}", one.where, option) : option);
    const LayoutSpec layout = *at_ranks(one, s, ranks, fail);
    const std::string where = fmt::format("{} {}", one.where, to_text(layout));
    check(run, layout, refusing(where));
    if (layout.ranks() > kMostThreads)
      refuse(fmt::format("{}: {} ranks, and one process has at most {}", where, layout.ranks(), kMostThreads),
             "use fewer ranks here; `lockstep plan` says what more of them cost");
    all.push_back(layout);
  }
  return all;
}

// Every layout once. Of rank counts beside the one that is looked at closely, those are left out that do not divide.
std::vector<LayoutSpec> all_layouts(const CompareSettings& s, const std::vector<Named>& named, const RunSpec& run,
                                    CompareAsked& asked) {
  std::vector<LayoutSpec> all;
  const auto add = [&](const LayoutSpec& layout) {
    if (std::ranges::find(all, layout) == all.end()) all.push_back(layout);
  };
  for (const LayoutSpec& layout : asked_layouts(s, named, run, asked.ranks)) add(layout);
  for (const std::int64_t count : asked.scale) {
    if (count == asked.ranks) continue;
    const auto skip = [&](std::string_view, const std::string& problem, const std::string&) {
      asked.skipped[count].insert(problem);
    };
    std::vector<LayoutSpec> wanted;
    if (count == 1 || named.empty()) wanted = usual_layouts(run, count);
    for (const Named& one : named)
      if (count > 1)
        if (const auto layout = at_ranks(one, s, count, skip)) wanted.push_back(*layout);
    for (const LayoutSpec& layout : wanted) {
      if (const auto why = why_not(run, layout))
        asked.skipped[count].insert(*why);
      else
        add(layout);
    }
  }
  return all;
}

// On a terminal, which layout is being tried; gone again when the table comes.
class ProgressLine {
 public:
  explicit ProgressLine(std::size_t all) : all_(all), shown_(on_terminal(STDERR_FILENO)) {}
  ~ProgressLine() { clear(); }
  void show(const LayoutSpec& layout) {
    ++done_;
    if (!shown_) return;
    fmt::print(stderr, "\r\033[K{}/{}  {}", done_, all_, to_text(layout));
    std::fflush(stderr);
  }
  void clear() {
    if (shown_) fmt::print(stderr, "\r\033[K");
    std::fflush(stderr);
  }

 private:
  std::size_t all_, done_ = 0;
  bool shown_;
};

int compare(const CompareSettings& s) {
  RunSpec run = read(s);
  CompareAsked asked{.scale = rank_counts(s.scale), .cores = usable_cores()};
  const std::vector<Named> named = named_layouts(s);
  asked.ranks = s.ranks > 0              ? s.ranks
                : !asked.scale.empty()   ? *asked.scale.rbegin()
                : !named.empty()         ? named.front().layout.ranks()
                : run.layout.ranks() > 1 ? run.layout.ranks()
                                         : kUsualRanks;
  if (!asked.scale.empty()) {
    asked.scale.insert({1, asked.ranks});           // efficiency is against one rank
    if (run.run.threads == 0) run.run.threads = 1;  // one rank is to have what each of many has
  }
  const std::vector<LayoutSpec> layouts = all_layouts(s, named, run, asked);
  const std::atomic<bool>& stop = listen_for_signals();
  const std::int64_t rounds = s.brief ? 1 : std::min(s.steps, ComparisonOptions{}.rounds);
  ProgressLine progress(layouts.size() * static_cast<std::size_t>(rounds));
  const Comparison comparison = compare_costs(run, layouts,
                                              {.steps = s.steps,
                                               .rounds = rounds,
                                               .forecasts = !s.brief,
                                               .wants_stop = [&] { return stop.load(); },
                                               .begins = [&](const LayoutSpec& l) { progress.show(l); }});
  progress.clear();
  if (comparison.layouts.empty() && !comparison.left_out.empty() && !comparison.stopped)
    throw UserError(ExitCode::does_not_fit,
                    fmt::format("none of the layouts fits: {}", comparison.left_out.front().why),
                    "use fewer ranks, a smaller model, more micro-batches or a shorter data.seq");
  asked.steps = s.steps;
  asked.brief = s.brief;
  asked.layouts = layouts.size();
  if (s.json)
    fmt::print("{}\n", compare_json(run, comparison, asked).dump(2));
  else
    fmt::print("{}", compare_text(run, comparison, asked,
                                  s.markdown                    ? CompareStyle::markdown
                                  : takes_colour(STDOUT_FILENO) ? CompareStyle::colour
                                                                : CompareStyle::plain));
  return static_cast<int>(comparison.ok() ? ExitCode::done : ExitCode::check_failed);
}

}  // namespace

void add_compare(CLI::App& app, std::function<int()>& chosen) {
  auto settings = std::make_shared<CompareSettings>();
  CLI::App* command = app.add_subcommand("compare", "Train a few steps under many layouts and show what each costs");
  command->footer(
      "Ranks are threads of this process. Without --layout: central, ddp without and with overlap, zero 1 to 3 with\n"
      "either grad_sync, zero 3 with reshard=never, hybrid where the ranks have a divisor, and where heads can be\n"
      "shared out so, tp over all ranks with sp=on and sp=off and, of four ranks or more, over each two; "
      "micro-batches\n"
      "are the run's. A layout that is named is whole: what it does not say has its default, and --set layout.KEY\n"
      "changes one key of each. Bytes by tag and messages are predicted on meta and measured, which must be\n"
      "equal; exit code 1: they are not. A layout that does not fit the machine is left out with a word.\n\n"
      "Step time, exposed time, bubble and tokens/s are predicted as well, before any layout runs: each rank's step "
      "on\n"
      "meta goes through a simulator whose times come from this machine's products, copies and messages and from some\n"
      "steps of one rank alone. They stand beside what was measured, and how far off they are is shown, not "
      "checked.\n\n"
      "--brief shows one table: each layout's last loss, the bytes of its fullest rank and the messages of its "
      "fullest\nsender, predicted and measured. Times are neither forecast nor shown.\n\n"
      "--layouts FILE names layouts, one per line, as --layout does; '#' begins a comment. Without --ranks each has "
      "the "
      "ranks\n"
      "that it says, and they may differ; with it, dp is what its other axes leave of them.\n\n"
      "With --scale every layout also runs at these numbers of ranks, each with run.threads threads (1), at the same\n"
      "global batch; a number that does not divide it is left out with a word. Efficiency is against one rank, times\n"
      "the cores that the ranks have. Ctrl-C ends after the step and shows what has been measured.\n\n"
      "Examples: lockstep compare --ranks 4\n"
      "          lockstep compare my.toml --ranks 8 --scale 1,2,4,8 --steps 10 --markdown\n"
      "          lockstep compare my.toml --ranks 4 --layout zero=2 --layout tp=2,zero=1\n"
      "          lockstep compare --layout dp=4 --layout tp=4 --brief --set precision.compute=fp64\n"
      "          lockstep compare my.toml --layouts layouts.txt --json");
  settings->run.add_to(*command);
  command
      ->add_option("--ranks", settings->ranks,
                   fmt::format("All ranks; dp is what pp, cp and tp leave of them [those of the layout, or {} where "
                               "it has 1 and none is named]",
                               kUsualRanks))
      ->check(CLI::Range(1, kMostThreads).description(""))
      ->type_name("N");
  CLI::Option* scale =
      command->add_option("--scale", settings->scale, "Numbers of ranks to run at as well, as in 1,2,4,8");
  scale->type_name("N,..");
  command
      ->add_option("--steps", settings->steps,
                   fmt::format("Steps that are timed under each layout, in three rounds whose first step is not [{}]",
                               settings->steps))
      ->check(CLI::Range(1, 1000).description(""))
      ->type_name("N");
  command
      ->add_option("--layout", settings->layouts,
                   "A whole layout in place of the usual ones, as in zero=3,shard=2; may be given several times")
      ->type_name("KEY=VALUE,..")
      ->allow_extra_args(false);
  command
      ->add_option("--layouts", settings->list,
                   "A file of layouts, one per line as in dp=2,pp=2,zero=3; beside --layout")
      ->type_name("FILE");
  command
      ->add_flag("--brief", settings->brief,
                 "One table: losses, bytes and messages, each predicted and measured, no times")
      ->excludes(scale);
  CLI::Option* json = command->add_flag("--json", settings->json, "Print everything that was measured, as JSON");
  command->add_flag("--markdown", settings->markdown, "Print the tables as markdown")->excludes(json);
  command->callback([settings, &chosen] { chosen = [settings] { return compare(*settings); }; });
}

}  // namespace lockstep
