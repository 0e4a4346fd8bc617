#include "cli/compare_sync.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <numeric>

#include "base/error.h"
#include "base/integers.h"
#include "cli/launched_rank.h"
#include "cli/progress_line.h"
#include "cli/signals.h"
#include "cli/start_ranks.h"
#include "cli/usage_error.h"
#include "spec/layout/layout_toml.h"
#include "spec/text/text_input.h"
#include "spec/text/toml_fields.h"
#include "train/pinning.h"
#include "train/training_run.h"

namespace lockstep {

namespace {

constexpr std::int64_t kMostSteps = 1'000'000'000;

// A technique as it was named: its keys and values.
struct NamedTechnique {
  std::string name;
  std::vector<std::string> sets;
  std::int64_t every = 1;
};

std::vector<std::string> split_at(std::string_view text, char mark) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(mark, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

NamedTechnique named_technique(const std::string& text) {
  NamedTechnique named{.name = text, .sets = {}};
  for (const std::string& item : split_at(text, ',')) {
    const std::size_t equals = item.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == item.size())
      refuse(fmt::format("--sync {}: {} is no KEY=VALUE of [sync]", quote_text(text), quote_text(item)),
             "use full, or keys of [sync], as in --sync compress=int8 or --sync kind=partial,every=16");
    named.sets.push_back("sync." + item);
    if (item.substr(0, equals) != "every") continue;
    std::int64_t every = 0;
    std::from_chars(item.data() + equals + 1, item.data() + item.size(), every);
    named.every = std::max<std::int64_t>(1, every);  // what is no number is refused where the run is read
  }
  return named;
}

// Full first, then each once, in order.
std::vector<NamedTechnique> named_techniques(const CompareSettings& s) {
  std::vector<NamedTechnique> all{{.name = "full", .sets = {}}};
  for (const std::string& list : s.sync)
    for (const std::string& text : split_at(list, ';')) {
      if (text.empty() || text == "full") continue;
      if (std::ranges::find(all, text, &NamedTechnique::name) == all.end()) all.push_back(named_technique(text));
    }
  return all;
}

// Steps that all techniques end with a synchronization: at least as many as asked for.
std::int64_t common_steps(const std::vector<NamedTechnique>& techniques, std::int64_t asked) {
  std::int64_t common = 1;
  for (const NamedTechnique& one : techniques) {
    if (one.every <= kMostSteps && common <= kMostSteps) common = std::lcm(common, one.every);
    if (one.every > kMostSteps || common > kMostSteps)
      refuse(fmt::format("--sync {}: together with the others it synchronizes after more than {} steps",
                         quote_text(one.name), kMostSteps),
             "use values of every that divide each other");
  }
  return round_up(std::max<std::int64_t>(1, asked), common);
}

class Techniques {
 public:
  explicit Techniques(const CompareSettings& s) : settings_(s), named_(named_techniques(s)) {
    if (s.layouts.size() > 1)
      refuse(fmt::format("--sync with {} layouts: it compares techniques under one", s.layouts.size()),
             "name one --layout");
    const RunSpec run = read({});
    if (run.sync != SyncSpec{})
      refuse("--sync of a run that has [sync] itself: the first row is full synchronization",
             "leave [sync] out of the run, and name it as --sync KEY=VALUE,..");
    if (device_of(run) != Device::cpu)
      refuse("--sync on a GPU: it compares ranks that are threads on the cpu", "use --set run.device=cpu");
    tokens_a_step_ = run.train.global_batch * run.data.seq;
    steps_ = common_steps(named_, s.tokens > 0 ? ceil_div(s.tokens, tokens_a_step_) : run.train.steps);
  }

  std::vector<SyncTechnique> all() const {
    std::vector<SyncTechnique> all;
    for (const NamedTechnique& one : named_) {
      std::vector<std::string> sets = one.sets;
      sets.insert(sets.end(), {fmt::format("train.steps={}", steps_), "train.save_every=0", "train.eval_every=0"});
      const RunSpec run = read(sets);
      all.push_back({.name = one.name, .run = laid_out(run, run.layout)});
    }
    return all;
  }
  std::int64_t tokens() const { return steps_ * tokens_a_step_; }

 private:
  RunSpec read(const std::vector<std::string>& sets) const {
    RunArguments arguments = settings_.run;
    arguments.sets.insert(arguments.sets.end(), sets.begin(), sets.end());
    const auto layout = settings_.layouts.empty() ? std::nullopt : std::optional(settings_.layouts.front());
    const RunSpec run = arguments.read(layout, settings_.ranks);
    if (run.layout.ranks() > 1) return run;
    if (settings_.ranks == 1 || layout)
      refuse("--sync of one rank: it has nobody to agree with", "use more, as in --ranks 4");
    return arguments.read(layout, kUsualRanks);
  }

  const CompareSettings& settings_;
  std::vector<NamedTechnique> named_;
  std::int64_t tokens_a_step_ = 1, steps_ = 1;
};

}  // namespace

int compare_sync_of(const CompareSettings& s) {
  if (launched_as_one_of_many())
    refuse("--sync under a launcher: it compares ranks that are threads of one process", "start without one");
  const Techniques techniques(s);
  const std::vector<SyncTechnique> all = techniques.all();
  const RunSpec& run = all.front().run;
  if (run.layout.ranks() > kMostComparedThreads)
    refuse(fmt::format("--sync: the layout has {} ranks, and one process has at most {}", run.layout.ranks(),
                       kMostComparedThreads),
           "use fewer ranks here; `lockstep plan --machine` says what more of them cost");
  const std::atomic<bool>& stop = listen_for_signals();
  SyncComparisonOptions options{
      .costs = {.steps = s.steps, .rounds = std::min(s.steps, ComparisonOptions{}.rounds), .forecasts = true},
      .losses = s.tokens > 0};
  SyncShown shown{.cores = usable_cores(), .markdown = s.markdown};
  if (!s.link.empty()) options.costs.link = shown.link = parse_link(s.link, "--link");
  if (s.tokens > 0) shown.tokens = techniques.tokens();
  options.costs.wants_stop = [&] { return stop.load(); };
  SyncComparison comparison;
  {
    ProgressLine progress(all.size() * static_cast<std::size_t>(options.costs.rounds + (options.losses ? 1 : 0)), true);
    options.begins = [&](const std::string& name) { progress.show(name); };
    comparison = compare_sync(all, options);
  }
  fmt::print("{}", s.json ? sync_json(run, comparison, shown) : sync_text(run, comparison, shown));
  return static_cast<int>(comparison.ok() ? ExitCode::done : ExitCode::check_failed);
}

}  // namespace lockstep
