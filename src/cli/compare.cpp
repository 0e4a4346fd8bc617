#include "cli/compare.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "cli/compare_view.h"
#include "cli/launch.h"
#include "cli/run_arguments.h"
#include "cli/signals.h"
#include "plan/comparison.h"
#include "spec/layout_toml.h"
#include "spec/text_input.h"
#include "train/pinning.h"

namespace lockstep {

namespace {

constexpr int kMostRanks = 256;          // threads of one process
constexpr std::int64_t kUsualRanks = 4;  // where the run file names one rank

struct Settings {
  RunArguments run;
  std::vector<std::string> layouts;
  std::string scale;
  std::int64_t ranks = 0, steps = ComparisonOptions{}.steps;
  bool json = false, markdown = false;
};

[[noreturn]] void refuse(const std::string& problem, const std::string& remedy) {
  throw UserError(ExitCode::usage, problem, remedy);
}

std::set<std::int64_t> rank_counts(const std::string& list) {
  std::set<std::int64_t> counts;
  for (std::size_t at = 0; !list.empty() && at <= list.size();) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    std::int64_t count = 0;
    const char* const end = list.data() + comma;
    const auto [stopped, error] = std::from_chars(list.data() + at, end, count);
    if (error != std::errc() || stopped != end || count < 1 || count > kMostRanks)
      refuse(fmt::format("--scale {}: {} is no number of ranks from 1 to {}", quote_text(list),
                         quote_text(list.substr(at, comma - at)), kMostRanks),
             "give numbers as in --scale 1,2,4,8");
    counts.insert(count);
    at = comma + 1;
  }
  return counts;
}

RunSpec read(const Settings& s) {
  if (launched_as_one_of_many())
    refuse("compare starts its ranks itself, as threads of one process", "run it without a launcher");
  RunSpec run = s.run.read();
  if (run.run.device != "cpu")
    refuse(fmt::format("compare trains on the cpu, and run.device = \"{}\"", run.run.device),
           "use --set run.device=cpu");
  return run;
}

// The layouts at one number of ranks. What a named one does not say of ranks, micro-batches, uneven parts and the
// reduction is as the run file has it. One whose pp and tp do not divide the ranks is a fault, and left out.
std::vector<LayoutSpec> layouts_at(const Settings& s, const RunSpec& run, std::int64_t ranks, const LayoutFault& fail) {
  if (s.layouts.empty()) return usual_layouts(run, ranks);
  std::vector<LayoutSpec> all;
  for (const std::string& text : s.layouts) {
    LayoutSpec layout = parse_layout(text);
    const auto says = [&](std::string_view key) {
      return ("," + text).find(fmt::format(",{}=", key)) != std::string::npos;
    };
    if (!says("micro")) layout.micro = run.layout.micro;
    if (!says("uneven")) layout.uneven = run.layout.uneven;
    if (!says("reduce")) layout.reduce = run.layout.reduce;
    if (!says("dp") || !s.scale.empty()) {
      const std::int64_t line = layout.pp * layout.cp * layout.tp, below = ranks / line * line;
      if (below != ranks) {
        const std::string_view key = layout.pp == 1 ? "tp" : layout.tp == 1 ? "pp" : "pp times tp";
        fail(layout.pp == 1 ? "tp" : "pp",
             fmt::format("{} ({}) does not divide {} rank{}", key, line, ranks, ranks == 1 ? "" : "s"),
             below == 0 ? fmt::format("use --ranks {}, or a smaller {}", line, key)
                        : fmt::format("use --ranks {} or {}, or another {}", below, below + line, key));
        continue;
      }
      layout.dp = ranks / line;
    }
    all.push_back(layout);
  }
  return all;
}

void check(const RunSpec& run, const LayoutSpec& layout, const LayoutFault& fail) {
  check_layout(run.train.global_batch, layout, fail);
  check_model_layout(run.model, run.data.seq, layout, fail);
}

// In the words of spec/layout_spec.h.
std::optional<std::string> why_not(const RunSpec& run, const LayoutSpec& layout) {
  try {
    check(run, layout, [](std::string_view, const std::string& problem, const std::string&) { refuse(problem, ""); });
    return std::nullopt;
  } catch (const UserError& error) {
    return error.what();
  }
}

// Every layout once. Of rank counts beside the one that is looked at closely, those are left out that do not divide.
std::vector<LayoutSpec> all_layouts(const Settings& s, const RunSpec& run, CompareAsked& asked) {
  std::vector<LayoutSpec> all;
  const auto add = [&](const LayoutSpec& layout) {
    if (std::ranges::find(all, layout) == all.end()) all.push_back(layout);
  };
  const auto refusing = [](const std::string& what) {
    return [what](std::string_view, const std::string& problem, const std::string& remedy) {
      refuse(fmt::format("{}: {}", what, problem), remedy);
    };
  };
  const std::string ranks = fmt::format("--ranks {}", asked.ranks);
  for (const LayoutSpec& layout : layouts_at(s, run, asked.ranks, refusing(ranks))) {
    check(run, layout, refusing(s.layouts.empty() ? ranks : fmt::format("--layout {}", to_text(layout))));
    add(layout);
  }
  for (const std::int64_t count : asked.scale) {
    if (count == asked.ranks) continue;
    const auto skip = [&](std::string_view, const std::string& problem, const std::string&) {
      asked.skipped[count].insert(problem);
    };
    const std::vector<LayoutSpec> wanted = count == 1 ? usual_layouts(run, 1) : layouts_at(s, run, count, skip);
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
  explicit ProgressLine(std::size_t all) : all_(all), shown_(isatty(STDERR_FILENO) != 0) {}
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

int compare(const Settings& s) {
  RunSpec run = read(s);
  CompareAsked asked{.scale = rank_counts(s.scale), .cores = usable_cores()};
  asked.ranks = s.ranks > 0              ? s.ranks
                : !asked.scale.empty()   ? *asked.scale.rbegin()
                : run.layout.ranks() > 1 ? run.layout.ranks()
                                         : kUsualRanks;
  if (!asked.scale.empty()) {
    asked.scale.insert({1, asked.ranks});           // efficiency is against one rank
    if (run.run.threads == 0) run.run.threads = 1;  // one rank is to have what each of many has
  }
  const std::vector<LayoutSpec> layouts = all_layouts(s, run, asked);
  const std::atomic<bool>& stop = listen_for_signals();
  ProgressLine progress(layouts.size() * static_cast<std::size_t>(std::min(s.steps, ComparisonOptions{}.rounds)));
  const Comparison comparison = compare_costs(run, layouts,
                                              {.steps = s.steps,
                                               .wants_stop = [&] { return stop.load(); },
                                               .begins = [&](const LayoutSpec& l) { progress.show(l); }});
  progress.clear();
  if (comparison.layouts.empty() && !comparison.left_out.empty() && !comparison.stopped)
    throw UserError(ExitCode::does_not_fit,
                    fmt::format("none of the layouts fits: {}", comparison.left_out.front().why),
                    "use fewer ranks, a smaller model, more micro-batches or a shorter data.seq");
  asked.steps = s.steps;
  asked.layouts = layouts.size();
  if (s.json)
    fmt::print("{}\n", compare_json(run, comparison, asked).dump(2));
  else
    fmt::print("{}", compare_text(run, comparison, asked,
                                  s.markdown              ? CompareStyle::markdown
                                  : isatty(STDOUT_FILENO) ? CompareStyle::colour
                                                          : CompareStyle::plain));
  return static_cast<int>(comparison.ok() ? ExitCode::done : ExitCode::check_failed);
}

}  // namespace

void add_compare(CLI::App& app, std::function<int()>& chosen) {
  auto settings = std::make_shared<Settings>();
  CLI::App* command = app.add_subcommand("compare", "Train a few steps under many layouts and show what each costs");
  command->footer(
      "Ranks are threads of this process. Without --layout: central, ddp without and with overlap, zero 1 to 3 with\n"
      "either grad_sync, zero 3 with reshard=never, hybrid where the ranks have a divisor, and where heads can be\n"
      "shared out so, tp over all ranks with sp=on and sp=off and, of four ranks or more, over each two. Global batch\n"
      "and micro-batches are the run's. Bytes by tag and messages are predicted on meta and measured, which must be\n"
      "equal; exit code 1: they are not. A layout that does not fit the machine is left out with a word.\n\n"
      "With --scale every layout also runs at these numbers of ranks, each with run.threads threads (1), at the same\n"
      "global batch; a number that does not divide it is left out with a word. Efficiency is against one rank, times\n"
      "the cores that the ranks have. Ctrl-C ends after the step and shows what has been measured.\n\n"
      "Examples: lockstep compare --ranks 4\n"
      "          lockstep compare my.toml --ranks 8 --scale 1,2,4,8 --steps 10 --markdown\n"
      "          lockstep compare my.toml --ranks 4 --layout zero=2 --layout tp=2,zero=1");
  settings->run.add_to(*command);
  command
      ->add_option("--ranks", settings->ranks,
                   fmt::format("Ranks that share each batch [those of the layout, or {} where it has 1]", kUsualRanks))
      ->check(CLI::Range(1, kMostRanks).description(""))
      ->type_name("N");
  command->add_option("--scale", settings->scale, "Numbers of ranks to run at as well, as in 1,2,4,8")
      ->type_name("N,..");
  command
      ->add_option("--steps", settings->steps,
                   fmt::format("Steps that are timed under each layout, in three rounds whose first step is not [{}]",
                               settings->steps))
      ->check(CLI::Range(1, 1000).description(""))
      ->type_name("N");
  command
      ->add_option("--layout", settings->layouts,
                   "A layout in place of the usual ones, as in zero=3,shard=2; may be given several times")
      ->type_name("KEY=VALUE,..")
      ->allow_extra_args(false);
  CLI::Option* json = command->add_flag("--json", settings->json, "Print everything that was measured, as JSON");
  command->add_flag("--markdown", settings->markdown, "Print the tables as markdown")->excludes(json);
  command->callback([settings, &chosen] { chosen = [settings] { return compare(*settings); }; });
}

}  // namespace lockstep
