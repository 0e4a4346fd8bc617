#include "plan/lever_comparison.h"

#include <algorithm>

#include "base/error.h"
#include "plan/compared_trial.h"

namespace lockstep {

namespace {

// A change of one key.
struct LeverChange {
  std::string text;
  std::function<void(RunSpec&)> use;
  bool numbers = false;
};

LeverChange recompute_change(Recompute level) {
  return {fmt::format("memory.recompute={}", name_of(level)), [=](RunSpec& run) { run.memory.recompute = level; }};
}

LeverChange micro_change(std::int64_t micro) {
  return {fmt::format("layout.micro={}", micro), [=](RunSpec& run) { run.layout.micro = micro; }};
}

LeverChange zero_change(std::int64_t zero) {
  return {fmt::format("layout.zero={}", zero), [=](RunSpec& run) {
            run.layout.zero = zero;
            run.layout.grad_sync = LayoutSpec::usual_sync(zero);
          }};
}

LeverChange bf16_change(std::string_view key, StateType PrecisionSpec::*type) {
  return {fmt::format("precision.{}=bf16", key), [=](RunSpec& run) { run.precision.*type = StateType::bf16; }, true};
}

class UsualLevers {
 public:
  explicit UsualLevers(const RunSpec& run) : none_(laid_out(run, run.layout)) {
    const std::string folder = run.memory.offload_folder;
    const std::int64_t window = run.memory.offload_window;
    none_.memory = {.gathered = none_.memory.gathered};
    const Offload place = run.run.device == RunDevice::cuda ? Offload::host : Offload::disk;
    const auto offloading = [=](std::string_view what, Offload MemorySpec::*where) -> LeverChange {
      return {fmt::format("memory.offload_{}={}", what, name_of(place)), [=](RunSpec& spec) {
                spec.memory.*where = place;
                if (spec.memory.offloads_state()) spec.memory.offload_window = window;
                if (place == Offload::disk) spec.memory.offload_folder = folder;
              }};
    };
    optimizer_ = offloading("optimizer", &MemorySpec::offload_optimizer);
    gradients_ = offloading("gradients", &MemorySpec::offload_gradients);
    parameters_ = offloading("parameters", &MemorySpec::offload_parameters);
    activations_ = offloading("activations", &MemorySpec::offload_activations);
  }

  std::vector<Lever> list() {
    add({});
    const LayoutSpec& layout = none_.layout;
    const std::vector<LeverChange> micros{micro_change(2 * layout.micro), micro_change(4 * layout.micro)};
    std::vector<LeverChange> zeros;
    for (std::int64_t zero = layout.zero + 1; zero <= 3; ++zero)
      if (layout.replicas() > 1 && layout.dp_kind == DpKind::ddp) zeros.push_back(zero_change(zero));
    for (const LeverChange& one : micros) add({one});
    for (const LeverChange& one : zeros) add({one});
    for (const Recompute level : {Recompute::elementwise, Recompute::projections, Recompute::full})
      add({recompute_change(level)});
    add({recompute_change(Recompute::full),
         {"memory.recompute_every=2", [](RunSpec& run) { run.memory.recompute_every = 2; }}});
    const LeverChange gradients = bf16_change("gradients", &PrecisionSpec::gradients),
                      moments = bf16_change("moments", &PrecisionSpec::moments),
                      master = bf16_change("master", &PrecisionSpec::master);
    for (const LeverChange& one : {gradients, moments, master}) add({one});
    const LeverChange half{"memory.offload_share=0.5", [](RunSpec& run) { run.memory.offload_share = 0.5; }};
    add({optimizer_, half}, kNone);
    add({optimizer_}, kNone);
    add({activations_}, kNone);
    add_with_zero({}, {gradients_});
    add_with_zero({}, {parameters_});
    add_with_zero({}, {optimizer_, gradients_, parameters_});
    // Together, from what costs least on.
    std::vector<LeverChange> all;
    if (is_allowed({micros[0]})) all.push_back(micros[0]);
    if (!zeros.empty()) all.push_back(zeros.back());
    all.push_back(recompute_change(Recompute::full));
    add_with_offload({recompute_change(Recompute::full)}, {optimizer_});
    add_with_offload(all, {optimizer_});
    add_with_zero(all, {optimizer_, gradients_, parameters_});
    for (const LeverChange& one : {gradients, moments, master}) {
      all.push_back(one);
      if (!is_allowed(all)) all.pop_back();
    }
    add_with_offload(all, {optimizer_});
    return std::move(list_);
  }

 private:
  static constexpr std::size_t kNone = 0;  // which of the list that is

  RunSpec with(const std::vector<LeverChange>& changes) const {
    RunSpec run = none_;
    for (const LeverChange& change : changes) change.use(run);
    return run;
  }
  bool is_allowed(const std::vector<LeverChange>& changes) const {
    try {
      validate(with(changes), [](std::string_view, std::string_view) { return std::string(); });
      return true;
    } catch (const UserError&) {
      return false;
    }
  }
  // Where it is in the list; nothing where the run cannot have it.
  std::optional<std::size_t> add(const std::vector<LeverChange>& changes, std::optional<std::size_t> without = {}) {
    if (!is_allowed(changes)) return std::nullopt;
    Lever lever{.changes = {}, .run = with(changes), .without = without};
    for (const LeverChange& change : changes) {
      lever.changes.push_back(change.text);
      lever.changes_numbers |= change.numbers;
    }
    for (std::size_t i = 0; i < list_.size(); ++i)
      if (list_[i].run == lever.run) return i;
    list_.push_back(std::move(lever));
    return list_.size() - 1;
  }
  void add_with_offload(std::vector<LeverChange> changes, const std::vector<LeverChange>& offloads) {
    const std::optional<std::size_t> without = add(changes);
    changes.insert(changes.end(), offloads.begin(), offloads.end());
    if (without) add(changes, without);
  }
  // With the first stage of ZeRO that offloads these. On one rank that stage is no lever by itself.
  void add_with_zero(std::vector<LeverChange> changes, const std::vector<LeverChange>& offloads) {
    const std::vector<LeverChange> before = changes;
    for (std::int64_t zero = none_.layout.zero; zero <= 3; ++zero) {
      changes = before;
      if (zero > none_.layout.zero) changes.push_back(zero_change(zero));
      std::vector<LeverChange> both = changes;
      both.insert(both.end(), offloads.begin(), offloads.end());
      if (!is_allowed(both)) continue;
      const auto without = add(none_.layout.replicas() > 1 ? changes : before);
      if (without) add(both, without);
      return;
    }
  }

  RunSpec none_;
  LeverChange optimizer_, gradients_, parameters_, activations_;  // offloaded
  std::vector<Lever> list_;
};

}  // namespace

std::string Lever::name() const {
  std::string name;
  for (const std::string& change : changes) name += (name.empty() ? "" : " + ") + change.substr(change.find('.') + 1);
  return name.empty() ? "none" : name;
}

std::vector<Lever> usual_levers(const RunSpec& run) { return UsualLevers(run).list(); }

bool LeverComparison::ok() const {
  return std::ranges::all_of(levers, [](const ComparedLever& one) { return !one.ran || one.ran->ok(); });
}

const ComparedLever* LeverComparison::first() const {
  const auto found = std::ranges::find_if(levers, [](const ComparedLever& one) { return one.ran.has_value(); });
  return found == levers.end() ? nullptr : &*found;
}

std::optional<double> LeverComparison::relative(const ComparedLever& of) const {
  if (!of.ran) return std::nullopt;
  return of.ran->tokens_a_second() / first()->ran->tokens_a_second();
}

LeverComparison compare_levers(const RunSpec& run, const ComparisonOptions& options,
                               const std::function<void(const std::string&)>& begins) {
  const std::vector<Lever> levers = usual_levers(run);
  const RunData data(run);
  LeverComparison comparison;
  std::vector<std::optional<ComparedTrial>> trials(levers.size());
  for (std::size_t i = 0; i < levers.size(); ++i) {
    const ComparedTrial& trial = trials[i].emplace(levers[i].run, data, options);
    const std::vector<Plan> stages = plan_stages(levers[i].run, data);
    const auto why = trial.why_it_does_not_fit();
    comparison.levers.push_back({.lever = levers[i], .plan = fullest(stages), .why_not = why.value_or("")});
    if (why) trials[i].reset();
    if (levers[i].without) comparison.levers.back().needed = !trials[*levers[i].without].has_value();
  }
  const std::int64_t rounds = std::min(options.rounds, options.steps);
  for (std::int64_t round = 0; round < rounds && !comparison.stopped; ++round)
    for (std::size_t i = 0; i < levers.size() && !comparison.stopped; ++i) {
      if (!trials[i]) continue;
      if (begins) begins(levers[i].name());
      comparison.stopped = !trials[i]->round(options.steps / rounds + (round < options.steps % rounds ? 1 : 0));
    }
  for (std::size_t i = 0; i < levers.size(); ++i)
    if (trials[i] && trials[i]->has_round()) {
      const ComparedLayout& ran = comparison.levers[i].ran.emplace(trials[i]->result());
      comparison.levers[i].plan = ran.fullest_plan;
    }
  return comparison;
}

}  // namespace lockstep
