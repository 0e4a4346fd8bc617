#include "plan/fit_search.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <ranges>
#include <set>
#include <tuple>

#include "base/error.h"
#include "plan/plan.h"
#include "spec/run/run_extent.h"
#include "telemetry/number_text.h"
#include "train/run_data.h"

namespace lockstep {

namespace {

// One choice of every lever.
struct FitChoice {
  int numbers = 0;                // how many of the types of 16 bits
  unsigned kinds = 0;             // of state that is offloaded beside what was asked for
  double share = 0;               // of all such state; 0: as asked
  std::int64_t window = 0;        // MiB, of such state; 0: as asked
  bool moves = false;             // activations are offloaded; false: as asked
  std::int64_t moved_blocks = 0;  // whose, of each stage; 0: of all
  std::size_t level = 0;
  std::int64_t blocks = 0;  // that recompute, of a level of all of them; 0: all
  std::int64_t zero = 0;
  bool waits = false;  // while it saves
  std::int64_t micro = 1;
  auto operator<=>(const FitChoice&) const = default;
};

// Kinds of state, as bits.
constexpr unsigned kFitOptimizer = 1, kFitGradients = 2, kFitParameters = 4;

struct FitKindKey {
  unsigned kind;
  std::string_view key;
  Offload MemorySpec::*where;
};
constexpr FitKindKey kFitKindKeys[] = {{kFitOptimizer, "memory.offload_optimizer", &MemorySpec::offload_optimizer},
                                       {kFitGradients, "memory.offload_gradients", &MemorySpec::offload_gradients},
                                       {kFitParameters, "memory.offload_parameters", &MemorySpec::offload_parameters}};

// What a tier may offload, the later the more.
enum class FitOffload { nothing, state, state_by_small_windows, gradients_and_weights };

struct RecomputeChoice {
  Recompute level;
  bool as_asked;  // of the blocks that the run names
};

constexpr double kShares[] = {0.25, 0.5, 0.75, 1};
constexpr std::int64_t kSmallWindow = 8;  // MiB: still several requests of a disk for each tensor

class Search {
 public:
  Search(const RunSpec& asked, const FitLimits& limits, const FitRates& rates, bool change_numbers)
      : asked_(asked), limits_(limits), rates_(rates), data_(asked) {
    numbers_ = change_numbers ? types_of_16_bits() : std::vector<Types>{};
    levels_ = recompute_levels();
    start_ = {.zero = asked.layout.zero, .waits = !asked.train.async_save, .micro = asked.layout.micro};
    micros_ = micros();
  }

  FitResult run() {
    FitResult result;
    result.asked = *planned(start_);
    if (result.asked.fits)
      result.cheapest = result.asked;
    else
      result.cheapest = walk_tiers();
    result.least = result.asked;
    for (const auto& [choice, setting] : planned_) {
      if (!setting) continue;
      if (setting->device < result.least.device) result.least = *setting;
      if (!setting->fits && (!result.cheapest || is_preferred(*setting, *result.cheapest)))
        result.too_large.push_back(*setting);
    }
    std::ranges::stable_sort(result.too_large, is_preferred);
    result.planned = static_cast<int>(planned_.size());
    return result;
  }

 private:
  using Types = std::pair<std::string_view, StateType PrecisionSpec::*>;

  static bool is_preferred(const FitSetting& a, const FitSetting& b) {
    return std::tie(a.tier, a.seconds) < std::tie(b.tier, b.seconds);
  }

  // What is left of them. fp64 runs are proofs, and keep all in fp64.
  std::vector<Types> types_of_16_bits() const {
    std::vector<Types> types;
    if (asked_.precision.compute == Precision::fp64) return types;
    RunSpec spec = asked_;
    for (const Types& type : {Types{"gradients", &PrecisionSpec::gradients}, Types{"moments", &PrecisionSpec::moments},
                              Types{"master", &PrecisionSpec::master}}) {
      const RunSpec before = spec;
      if (spec.precision.*type.second == StateType::bf16) continue;
      spec.precision.*type.second = StateType::bf16;
      if (is_possible(spec))
        types.push_back(type);
      else
        spec = before;
    }
    return types;
  }

  std::vector<RecomputeChoice> recompute_levels() const {
    const MemorySpec& memory = asked_.memory;
    const bool part = memory.recompute_blocks != 0 || memory.recompute_every != 1 || !memory.recompute_stages.empty();
    std::vector<RecomputeChoice> levels{{memory.recompute, true}};
    for (const Recompute level : kRecomputes)
      if (level > memory.recompute || (level == memory.recompute && part)) levels.push_back({level, false});
    return levels;
  }

  // Numbers of micro-batches, from the run's own on, that its batch can be split into.
  std::vector<std::int64_t> micros() const {
    const std::int64_t batch = asked_.train.global_batch, dp = asked_.layout.dp;
    std::set<std::int64_t> all{asked_.layout.micro};
    const auto add = [&](std::int64_t micro) {
      if (micro <= asked_.layout.micro || micro > batch / dp) return;
      if (batch % (micro * dp) != 0 && asked_.layout.uneven != Switch::on) return;
      FitChoice choice = start_;
      choice.micro = micro;
      if (is_possible(with(choice))) all.insert(micro);
    };
    for (std::int64_t divisor = 1; divisor <= batch / divisor; ++divisor) {
      if (batch % divisor != 0) continue;
      add(divisor);
      add(batch / divisor);
    }
    return {all.begin(), all.end()};
  }
  // Offloaded weights are gathered for their use on one rank too.
  std::int64_t most_zero(unsigned kinds) const {
    if (asked_.layout.dp_kind != DpKind::ddp) return asked_.layout.zero;
    return asked_.layout.replicas() > 1 || (kinds & kFitParameters) ? 3 : asked_.layout.zero;
  }
  bool copies() const { return asked_.train.async_save && (asked_.train.save_last || asked_.train.save_every > 0); }
  // A GPU's run has its copy on the host.
  bool copy_counts() const { return asked_.run.device == RunDevice::cpu || limits_.host < FitLimits::kNone; }
  double asked_share() const { return asked_.memory.offloads_state() ? asked_.memory.offload_share : 0; }

  // What is offloaded, of a tier that does so.
  struct Offloaded {
    unsigned kinds;
    double share;
    bool moves;
  };
  std::vector<Offloaded> offloaded_choices(FitOffload tier) const {
    if (tier == FitOffload::nothing) return {{0, 0, false}};
    const bool may_move = asked_.memory.offload_activations == Offload::none || asked_.memory.offload_blocks > 0;
    std::vector<Offloaded> all;
    for (const bool moves : {false, true}) {
      if (moves && !may_move) continue;
      if (moves && tier == FitOffload::state) all.push_back({0, 0, true});  // and no state
      for (const unsigned kinds : kinds_of(tier)) {
        if (kinds != 0 && asked_share() > 0) all.push_back({kinds, 0, moves});
        for (const double share : kShares)
          if (share > asked_share() && (kinds != 0 || asked_share() > 0)) all.push_back({kinds, share, moves});
      }
    }
    return all;
  }
  // The optimizer's state, unless it is offloaded already or there is none; in the last tier beside what else can be.
  std::vector<unsigned> kinds_of(FitOffload tier) const {
    const unsigned state = may_offload(kFitOptimizer) ? kFitOptimizer : 0;
    if (tier != FitOffload::gradients_and_weights) return {state};
    std::vector<unsigned> all;
    for (const unsigned more : {kFitGradients, kFitParameters, kFitGradients | kFitParameters})
      if (may_offload(more)) all.push_back(state | more);
    return all;
  }
  bool may_offload(unsigned kinds) const {
    for (const FitKindKey& one : kFitKindKeys)
      if ((kinds & one.kind) && asked_.memory.*one.where != Offload::none) return false;
    FitChoice choice = start_;
    choice.kinds = kinds;
    for (; choice.zero <= most_zero(kinds); ++choice.zero)
      if (is_possible(with(choice))) return true;
    return false;
  }
  bool moves_activations(const FitChoice& choice) const {
    return choice.moves || asked_.memory.offload_activations != Offload::none;
  }
  // In some schedules other numbers of micro-batches move less: of what phases need, and not updates alone.
  bool may_move_less(const FitChoice& choice) const {
    const bool asked =
        asked_.memory.offload_gradients != Offload::none || asked_.memory.offload_parameters != Offload::none;
    const bool phases_need_it = asked || (choice.kinds & (kFitGradients | kFitParameters));
    return moves_activations(choice) || (asked_.layout.pp > 1 && phases_need_it);
  }
  // How it may save. What is offloaded is not copied, as a run file has it.
  std::vector<bool> ways_to_wait(const Offloaded& offloaded) const {
    if (copies() && (offloaded.kinds != 0 || offloaded.share > 0)) return {true};
    if (copies() && copy_counts()) return {false, true};
    return {!asked_.train.async_save};
  }

  std::optional<FitSetting> walk_tiers() {
    for (const FitOffload tier : {FitOffload::nothing, FitOffload::state, FitOffload::state_by_small_windows,
                                  FitOffload::gradients_and_weights})
      for (int numbers = 0; numbers <= static_cast<int>(numbers_.size()); ++numbers)
        if (auto found = cheapest_of_tier(numbers, tier)) return found;
    return std::nullopt;
  }

  std::optional<FitSetting> cheapest_of_tier(int numbers, FitOffload tier) {
    best_.reset();
    too_slow_.clear();
    const bool smaller = asked_.memory.offload_window > kSmallWindow;
    if (tier == FitOffload::state_by_small_windows && !smaller) return std::nullopt;
    const std::vector<Offloaded> choices = offloaded_choices(tier);
    FitChoice choice{.numbers = numbers, .window = tier > FitOffload::state && smaller ? kSmallWindow : 0};
    for (choice.level = 0; choice.level < levels_.size(); ++choice.level)
      for (choice.zero = asked_.layout.zero; choice.zero <= 3; ++choice.zero) {
        std::map<std::pair<unsigned, bool>, bool> some_fit;           // by kinds and whether activations move
        for (const Offloaded& one : choices | std::views::reverse) {  // the last takes least
          if (choice.zero > most_zero(one.kinds) || some_fit.contains({one.kinds, one.moves})) continue;
          const FitSetting* smallest = planned(of(choice, one, ways_to_wait(one).back(), micros_.back()));
          some_fit[{one.kinds, one.moves}] = smallest && smallest->device <= limits_.device;
        }
        for (const Offloaded& one : choices)
          if (some_fit[{one.kinds, one.moves}])
            for (const bool waits : ways_to_wait(one)) look_at(of(choice, one, waits, choice.micro));
      }
    if (best_) use_fewer_blocks();
    if (best_ && best_->moves) move_fewer_blocks();
    return best_ ? std::optional(*planned(*best_)) : std::nullopt;
  }

  static FitChoice of(FitChoice choice, const Offloaded& offloaded, bool waits, std::int64_t micro) {
    choice.kinds = offloaded.kinds;
    choice.share = offloaded.share;
    choice.moves = offloaded.moves;
    choice.waits = waits;
    choice.micro = micro;
    return choice;
  }

  // Of one choice of all else, the micro-batches.
  void look_at(FitChoice choice) {
    const auto at = [&](std::int64_t micro) {
      choice.micro = micro;
      return choice;
    };
    // With more recomputed it only takes longer, unless there is less to move.
    const std::tuple others{choice.kinds, choice.share, choice.zero,
                            choice.waits, choice.moves, moves_activations(choice) ? choice.level : 0};
    if (too_slow_.contains(others) || !planned(at(micros_.front()))) return;
    if (bound_from(at(micros_.front())) >= best_seconds()) {
      too_slow_.insert(others);
      return;
    }
    const auto fits = [&](std::int64_t micro) {
      const FitSetting* setting = planned(at(micro));
      return setting && setting->fits;
    };
    if (!fits(micros_.back())) return;
    auto enough = std::ranges::partition_point(micros_, [&](std::int64_t micro) { return !fits(micro); });
    for (const FitChoice fewest = at(*enough); enough != micros_.end(); ++enough) {
      if (bound_from(fewest, *enough) >= best_seconds()) continue;  // a pipeline's bubble shrinks with more of them
      if (fits(*enough) && planned(at(*enough))->seconds < best_seconds()) best_ = at(*enough);
    }
  }

  double best_seconds() { return best_ ? planned(*best_)->seconds : std::numeric_limits<double>::infinity(); }

  // No number of micro-batches from this one on takes less: stages are busy as long, and the bubble is what it is.
  double bound_from(const FitChoice& choice) {
    double least = std::numeric_limits<double>::infinity();
    for (const std::int64_t micro : micros_)
      if (micro >= choice.micro) least = std::min(least, bound_from(choice, micro));
    return least;
  }
  double bound_from(const FitChoice& choice, std::int64_t micro) {
    const StepCost& cost = costs_.at(choice);
    return cost.busy * stretch_of(micro) + (may_move_less(choice) ? 0 : cost.beside);
  }
  double stretch_of(std::int64_t micro) {
    const auto known = stretches_.find(micro);
    if (known != stretches_.end()) return known->second;
    LayoutSpec layout = asked_.layout;
    layout.micro = micro;
    return stretches_[micro] = pipeline_stretch(layout);
  }

  void use_fewer_blocks() {
    FitChoice choice = *best_;
    if (levels_[choice.level].as_asked || !recomputes_products(levels_[choice.level].level)) return;
    const auto fits = [&](std::int64_t blocks) {
      choice.blocks = blocks;
      const FitSetting* setting = planned(choice);
      return setting && setting->fits;
    };
    std::int64_t few = 0, enough = asked_.model.layers;  // none would be another level
    while (enough - few > 1) (fits((few + enough) / 2) ? enough : few) = (few + enough) / 2;
    if (enough == asked_.model.layers || !fits(enough)) return;
    if (planned(choice)->seconds <= best_seconds()) best_ = choice;
  }

  void move_fewer_blocks() {
    FitChoice choice = *best_;
    const auto fits = [&](std::int64_t blocks) {
      choice.moved_blocks = blocks;
      const FitSetting* setting = planned(choice);
      return setting && setting->fits;
    };
    std::int64_t few = 0, enough = asked_.model.layers;
    while (enough - few > 1) (fits((few + enough) / 2) ? enough : few) = (few + enough) / 2;
    if (enough < asked_.model.layers && fits(enough) && planned(choice)->seconds <= best_seconds()) best_ = choice;
  }

  // Where what is offloaded goes: to where something is already, as all of it must.
  Offload elsewhere() const {
    if (const Offload to = asked_.memory.offloads_to(); to != Offload::none) return to;
    return asked_.run.device == RunDevice::cuda ? Offload::host : Offload::disk;
  }
  void offload(RunSpec& spec, unsigned kinds) const {
    for (const FitKindKey& one : kFitKindKeys)
      if (kinds & one.kind) spec.memory.*one.where = elsewhere();
    // The host's cores update where gradients and weights are on the device.
    if (kinds & (kFitGradients | kFitParameters)) spec.memory.offload_update = OffloadUpdate::choose;
  }

  RunSpec with(const FitChoice& choice) const {
    RunSpec spec = asked_;
    for (int i = 0; i < choice.numbers; ++i)
      spec.precision.*numbers_[static_cast<std::size_t>(i)].second = StateType::bf16;
    offload(spec, choice.kinds);
    if (choice.share > 0) spec.memory.offload_share = choice.share;
    if (choice.window > 0) spec.memory.offload_window = choice.window;
    if (choice.moves) {
      spec.memory.offload_activations = elsewhere();
      spec.memory.offload_blocks = choice.moved_blocks;
    }
    if (const RecomputeChoice& level = levels_[choice.level]; !level.as_asked) {
      spec.memory.recompute = level.level;
      spec.memory.recompute_blocks = choice.blocks;
      spec.memory.recompute_every = 1;
      spec.memory.recompute_stages = {};
    }
    spec.train.async_save = !choice.waits;
    spec.layout.micro = choice.micro;
    if (choice.zero != asked_.layout.zero) {
      spec.layout.zero = choice.zero;
      spec.layout.grad_sync = LayoutSpec::usual_sync(choice.zero);
    }
    return spec;
  }

  std::vector<std::string> changes_of(const FitChoice& choice) const {
    const RunSpec spec = with(choice);
    std::vector<std::string> changes;
    const auto say = [&](std::string_view key, const auto& value, bool changed) {
      if (changed) changes.push_back(fmt::format("{}={}", key, value));
    };
    for (int i = 0; i < choice.numbers; ++i)
      say(fmt::format("precision.{}", numbers_[static_cast<std::size_t>(i)].first), "bf16", true);
    say("memory.recompute", name_of(spec.memory.recompute), !levels_[choice.level].as_asked);
    say("memory.recompute_blocks", choice.blocks, choice.blocks > 0);
    say("layout.zero", spec.layout.zero, spec.layout.zero != asked_.layout.zero);
    say("layout.micro", spec.layout.micro, spec.layout.micro != asked_.layout.micro);
    say("train.async_save", spec.train.async_save, spec.train.async_save != asked_.train.async_save);
    for (const FitKindKey& one : kFitKindKeys)
      say(one.key, name_of(spec.memory.*one.where), (choice.kinds & one.kind) != 0);
    // What --set of such a key takes from the run file is said again.
    const MemorySpec before = choice.kinds != 0 ? MemorySpec{} : asked_.memory;
    say("memory.offload_share", spec.memory.offload_share, spec.memory.offload_share != before.offload_share);
    say("memory.offload_activations", name_of(spec.memory.offload_activations), choice.moves);
    say("memory.offload_blocks", choice.moved_blocks, choice.moved_blocks > 0);
    say("memory.offload_window", spec.memory.offload_window, spec.memory.offload_window != before.offload_window);
    say("memory.offload_update", name_of(spec.memory.offload_update),
        spec.memory.offload_update != before.offload_update);
    say("memory.offload_folder", spec.memory.offload_folder,
        (choice.kinds != 0 || choice.moves) && !spec.memory.offload_folder.empty());
    return changes;
  }

  // Each is planned once; null where the run would be refused.
  const FitSetting* planned(const FitChoice& choice) {
    const auto known = planned_.find(choice);
    if (known != planned_.end()) return known->second ? &*known->second : nullptr;
    const RunSpec spec = with(choice);
    std::optional<FitSetting>& setting = planned_[choice];
    if (!is_possible(spec)) return nullptr;
    const std::vector<Plan> stages = plan_stages(spec, data_);
    StepCost& cost = costs_[choice] = step_cost(spec, stages, rates_);
    if (choice.waits && copies()) cost.beside += seconds_of_saves();
    setting.emplace();
    setting->changes = changes_of(choice);
    setting->tier = choice.numbers + static_cast<int>(tier_of(choice)) * (static_cast<int>(numbers_.size()) + 1);
    for (const Plan& plan : stages) {
      setting->host = std::max(setting->host, plan.host);
      setting->disk = std::max(setting->disk, plan.disk);
      setting->moved =
          std::max(setting->moved, plan.moved.to_device + plan.moved.from_device + 2 * plan.moved_activations);
    }
    setting->device = fullest(stages).peak + fullest(stages).outside;
    setting->peaks = fullest(stages).peaks;
    setting->seconds = cost.seconds();
    setting->fits = setting->device <= limits_.device && setting->host <= limits_.host && setting->disk <= limits_.disk;
    return &*setting;
  }

  static FitOffload tier_of(const FitChoice& choice) {
    if (choice.kinds & (kFitGradients | kFitParameters)) return FitOffload::gradients_and_weights;
    if (choice.window > 0) return FitOffload::state_by_small_windows;
    return choice.kinds != 0 || choice.share > 0 || choice.moves ? FitOffload::state : FitOffload::nothing;
  }

  // Per step: a run that waits writes what it would have copied.
  double seconds_of_saves() {
    if (saves_ >= 0) return saves_;
    RunSpec waits = asked_;
    waits.train.async_save = false;
    std::int64_t written = 0;
    const std::vector<Plan> copied = plan_stages(asked_, data_), waited = plan_stages(waits, data_);
    for (std::size_t stage = 0; stage < copied.size(); ++stage)
      written = std::max(written, copied[stage].peak + copied[stage].host - waited[stage].peak - waited[stage].host);
    const std::int64_t every = asked_.train.save_every > 0 ? asked_.train.save_every : asked_.train.steps;
    saves_ = static_cast<double>(written) / rates_.saved / static_cast<double>(std::max<std::int64_t>(1, every));
    return saves_;
  }

  const RunSpec& asked_;
  const FitLimits limits_;
  const FitRates& rates_;
  const RunData data_;
  std::vector<Types> numbers_;
  std::vector<RecomputeChoice> levels_;
  FitChoice start_;
  std::vector<std::int64_t> micros_;
  std::map<FitChoice, std::optional<FitSetting>> planned_;
  std::map<FitChoice, StepCost> costs_;
  std::map<std::int64_t, double> stretches_;  // by micro-batches
  // Of this tier: kinds, share, zero, waits and moves, and where activations are offloaded, the level.
  std::set<std::tuple<unsigned, double, std::int64_t, bool, bool, std::size_t>> too_slow_;
  std::optional<FitChoice> best_;  // of this tier
  double saves_ = -1;
};

}  // namespace

Tag FitSetting::largest_tag() const { return static_cast<Tag>(std::ranges::max_element(peaks) - peaks.begin()); }

std::string FitSetting::text() const {
  return changes.empty() ? "as asked" : fmt::format("--set {}", fmt::join(changes, " --set "));
}

FitResult search_fit(const RunSpec& asked, const FitLimits& limits, const FitRates& rates, bool change_numbers) {
  return Search(asked, limits, rates, change_numbers).run();
}

std::optional<std::string> settings_that_fit(const RunSpec& asked, const FitLimits& limits) {
  const FitResult result = search_fit(asked, limits, stated_rates(asked));
  if (!result.cheapest) return std::nullopt;
  return fmt::format("{} fits: {}", result.cheapest->text(), byte_text(result.cheapest->device));
}

}  // namespace lockstep
