#include "plan/layout_walk.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>

#include "telemetry/number_text.h"

namespace lockstep {

namespace {

using Key = std::function<std::int64_t(const LayoutChoice&)>;

class Walk {
 public:
  Walk(LayoutTimer& timer, const ComposedSpace& space) : timer_(timer), space_(space) {
    for (std::size_t i = 0; i < space.choices.size(); ++i)
      if (space.steps[i] && fits(i)) left_.push_back(i);
  }

  LayoutWalk run() {
    one_device();
    if (left_.empty()) return std::move(walk_);
    const MachineSpec& machine = timer_.machine();
    ask("Split every layer (tp), inside a node?", "tp", [](const LayoutChoice& c) { return c.layout.tp; });
    ask(fmt::format("Split samples of {} tokens (cp)?", grouped_digits(timer_.run().data.seq)), "cp",
        [](const LayoutChoice& c) { return c.layout.cp; });
    ask(machine.nodes > 1 ? "Split the layers over stages (pp), between nodes?" : "Split the layers over stages (pp)?",
        "pp", [](const LayoutChoice& c) { return c.layout.pp; });
    replicas();
    ask(
        "Shard state over the replicas (ZeRO)?", "zero", [](const LayoutChoice& c) { return c.layout.zero; }, true);
    ask(
        "Recompute activations?", "memory.recompute",
        [](const LayoutChoice& c) { return static_cast<std::int64_t>(c.recompute); }, true,
        [](std::int64_t value) { return std::string(name_of(static_cast<Recompute>(value))); });
    ask(
        "Offload optimizer state to the host?", "offload",
        [](const LayoutChoice& c) { return static_cast<std::int64_t>(c.offload); }, true,
        [](std::int64_t value) { return std::string(value ? "yes" : "no"); });
    micro_batches();
    return std::move(walk_);
  }

 private:
  bool fits(std::size_t i) const {
    const std::int64_t memory = timer_.machine().memory;
    return memory <= 0 || space_.steps[i]->bytes <= memory;
  }
  double seconds(std::size_t i) const { return space_.steps[i]->seconds; }

  // The whole run on one device, one sample at a time.
  void one_device() {
    const MachineSpec& machine = timer_.machine();
    RunSpec one = timer_.run();
    one.layout = {};
    one.train.global_batch = 1;
    one.train.async_save = false;
    const std::vector<Plan> plans = plan_stages(one, timer_.data());
    const Plan& plan = plans.front();
    const auto of = [&](Tag tag) { return byte_text(plan.peak_of(tag)); };
    WalkStep step{.question = "Do parameters, gradients, optimizer state and one sample's activations fit one device?",
                  .numbers = {fmt::format("parameters {}, gradients {}, optimizer {}, activations {}: {} of {}",
                                          of(Tag::parameter), of(Tag::gradient), of(Tag::optimizer),
                                          of(Tag::activation), byte_text(plan.peak), byte_text(machine.memory))},
                  .answer = {}};
    step.answer = plan.peak + plan.outside <= machine.memory
                      ? "yes"
                      : fmt::format("no, {} are missing: shard it, recompute, or offload",
                                    byte_text(plan.peak + plan.outside - machine.memory));
    walk_.steps.push_back(std::move(step));

    MachineSpec alone = machine;
    alone.nodes = 1;
    const auto samples = static_cast<double>(timer_.run().train.global_batch);
    const double seconds = samples * predict_step(one, alone, timer_.data(), plans).step_seconds;
    const double devices = static_cast<double>(machine.devices());
    walk_.steps.push_back(
        {.question = "Is one device fast enough?",
         .numbers = {fmt::format("a step of {} tokens takes it {}; {} devices could take {} at best",
                                 grouped_digits(plan.tokens_a_step * timer_.run().train.global_batch),
                                 seconds_text(seconds), grouped_digits(machine.devices()),
                                 seconds_text(seconds / devices))},
         .answer = machine.devices() == 1 ? "there is only one" : fmt::format("use all {}", machine.devices())});
    if (left_.empty()) walk_.steps.push_back({.question = "Does any layout fit?", .numbers = {}, .answer = "no"});
  }

  struct Option {
    std::size_t best = 0;  // of the choices with its value
    double seconds = 0;
    std::int64_t bytes = 0;
    bool fits = true;
  };
  using Text = std::function<std::string(std::int64_t)>;
  static std::string number_text(std::int64_t value) { return std::to_string(value); }

  // Keeps the choices with the value whose best is fastest: as composed, or timed in full. A question with one possible
  // answer is not asked.
  void ask(const std::string& question, std::string_view name, const Key& key, bool in_full = false,
           const Text& text = number_text) {
    std::map<std::int64_t, Option> options;
    for (const std::size_t i : left_) {
      const auto [at, first] = options.try_emplace(key(space_.choices[i]));
      if (first || seconds(i) < at->second.seconds)
        at->second = {.best = i, .seconds = seconds(i), .bytes = space_.steps[i]->bytes};
    }
    if (options.size() > 1 && in_full) time_options(options);
    auto chosen = options.end();
    for (auto at = options.begin(); at != options.end(); ++at)
      // A larger value must be worth it: by a hundredth.
      if (at->second.fits && (chosen == options.end() || at->second.seconds < 0.99 * chosen->second.seconds))
        chosen = at;
    if (chosen == options.end()) chosen = options.begin();
    if (options.size() > 1) {
      WalkStep step{.question = question, .numbers = {}, .answer = fmt::format("{}={}", name, text(chosen->first))};
      for (const auto& [value, option] : options)
        step.numbers.push_back(fmt::format("{}={}: {} at best, {}{} ({})", name, text(value),
                                           seconds_text(option.seconds), byte_text(option.bytes),
                                           option.fits ? "" : ", too large", to_text(space_.choices[option.best])));
      walk_.steps.push_back(std::move(step));
    }
    std::erase_if(left_, [&](std::size_t i) { return key(space_.choices[i]) != chosen->first; });
  }
  void time_options(std::map<std::int64_t, Option>& options) {
    std::vector<LayoutChoice> choices;
    for (const auto& [value, option] : options) choices.push_back(space_.choices[option.best]);
    const std::vector<std::optional<TimedLayout>> timed = timer_.time_all(choices);
    auto at = timed.begin();
    for (auto& [value, option] : options) {
      if (const auto& found = *at++; found)
        option = {
            .best = option.best, .seconds = found->predicted.step_seconds, .bytes = found->peak, .fits = found->fits};
      else
        option.fits = false;
    }
  }

  void replicas() {
    const LayoutSpec& l = space_.choices[left_.front()].layout;
    walk_.steps.push_back({.question = "What is left for data parallel (dp)?",
                           .numbers = {fmt::format("{} devices / (tp {} · cp {} · pp {})",
                                                   grouped_digits(timer_.machine().devices()), l.tp, l.cp, l.pp)},
                           .answer = fmt::format("dp={}", l.dp)});
  }

  // In full: the number of micro-batches against bubble, memory and the efficiency of products.
  void micro_batches() {
    std::ranges::stable_sort(left_, {}, [&](std::size_t i) { return seconds(i); });
    std::map<std::int64_t, LayoutChoice> by_micro;  // the best of each
    for (const std::size_t i : left_) by_micro.try_emplace(space_.choices[i].layout.micro, space_.choices[i]);
    std::vector<LayoutChoice> choices;
    for (const auto& [micro, choice] : by_micro) choices.push_back(choice);
    WalkStep step{.question = "How many micro-batches?", .numbers = {}, .answer = {}};
    for (const std::optional<TimedLayout>& timed : timer_.time_all(choices)) {
      if (!timed) continue;
      const StepPrediction& p = timed->predicted;
      step.numbers.push_back(fmt::format(
          "micro={}: {}, {}{}{}", timed->choice.layout.micro, seconds_text(p.step_seconds), byte_text(timed->peak),
          p.bubble ? fmt::format(", bubble {:.1f} %", 100 * *p.bubble) : "", timed->fits ? "" : ", too large"));
      if (timed->fits && (!walk_.result || p.step_seconds < walk_.result->predicted.step_seconds)) walk_.result = timed;
    }
    // What was composed to fit may not: then whatever else has these answers, the fastest first.
    for (std::size_t i = 0; i < left_.size() && i < 40 && !walk_.result; ++i)
      if (const auto timed = timer_.time(space_.choices[left_[i]]); timed && timed->fits) walk_.result = timed;
    step.answer = walk_.result ? to_text(walk_.result->choice) : "none of them fits in full";
    walk_.steps.push_back(std::move(step));
  }

  LayoutTimer& timer_;
  const ComposedSpace& space_;
  std::vector<std::size_t> left_;
  LayoutWalk walk_;
};

}  // namespace

LayoutWalk walk_layouts(LayoutTimer& timer, const ComposedSpace& space) { return Walk(timer, space).run(); }

std::optional<Missing> what_is_missing(const RunSpec& run, const MachineSpec& machine, const RunData& data) {
  std::optional<Missing> missing;
  MachineSpec larger = machine;
  for (int doublings = 0; doublings < 16; ++doublings, larger.nodes *= 2) {
    UnitPrices prices(run, larger, data);
    const ComposedSpace space = compose_all(run, larger, prices);
    const std::vector<std::size_t> smallest = smallest_of(space);
    if (smallest.empty()) break;
    LayoutTimer timer(run, larger, data);
    std::optional<TimedLayout> least;
    for (const std::size_t i : smallest) {
      const auto timed = timer.time(space.choices[i]);
      if (timed && (!least || timed->peak < least->peak)) least = timed;
    }
    if (!least) continue;
    if (!missing) missing = Missing{.smallest = *least, .nodes = {}};
    if (least->fits) {
      missing->nodes = larger.nodes;
      break;
    }
  }
  return missing;
}

}  // namespace lockstep
