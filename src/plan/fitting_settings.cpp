#include "plan/fitting_settings.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "plan/plan.h"
#include "spec/run/run_extent.h"
#include "telemetry/number_text.h"

namespace lockstep {

namespace {

// One choice of every lever.
struct Choice {
  bool async_save;
  std::int64_t zero, micro;
  Recompute recompute;
};

// Not where a schedule wants other micro-batches, or there are too many of them to list.
bool is_allowed(const RunSpec& spec) {
  try {
    validate(spec, [](std::string_view, std::string_view) { return std::string(); });
    check_extent(spec);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

class Search {
 public:
  Search(const RunSpec& asked, std::int64_t available) : asked_(asked), available_(available), micros_(micros()) {}

  // Cheapest in time first. To save in the foreground costs time at saves alone; passes over memory and smaller
  // micro-batches cost some in every step, sharded state costs messages, projections cost a third of a forward, and
  // blocks that keep their input alone a whole one.
  std::optional<std::string> run() {
    const bool copies = asked_.train.async_save && (asked_.train.save_last || asked_.train.save_every > 0);
    if (copies)
      if (auto found = text_of({false, asked_.layout.zero, asked_.layout.micro, asked_.memory.recompute})) return found;
    for (const bool async : {true, false}) {
      if (async ? !asked_.train.async_save : !copies && asked_.train.async_save) continue;
      for (const auto& levels :
           {std::vector{Recompute::none, Recompute::elementwise}, {Recompute::projections}, {Recompute::full}})
        for (std::int64_t zero = asked_.layout.zero; zero <= most_zero(); ++zero)
          if (auto found = fewest_micro(async, zero, levels)) return found;
    }
    return std::nullopt;
  }

 private:
  // Numbers of micro-batches, from the run's own on, that its batch can be split into.
  std::vector<std::int64_t> micros() const {
    const std::int64_t batch = asked_.train.global_batch, dp = asked_.layout.dp;
    std::vector<std::int64_t> all;
    const auto add = [&](std::int64_t micro) {
      if (micro < asked_.layout.micro || micro > batch / dp) return;
      if (batch % (micro * dp) == 0 || asked_.layout.uneven == Switch::on) all.push_back(micro);
    };
    for (std::int64_t divisor = 1; divisor <= batch / divisor; ++divisor) {
      if (batch % divisor != 0) continue;
      add(divisor);
      if (divisor != batch / divisor) add(batch / divisor);
    }
    std::erase_if(all, [&](std::int64_t micro) {
      return !is_allowed(with({asked_.train.async_save, asked_.layout.zero, micro, asked_.memory.recompute}));
    });
    std::ranges::sort(all);
    return all;
  }
  std::int64_t most_zero() const {
    const bool shards = asked_.layout.replicas() > 1 && asked_.layout.dp_kind == DpKind::ddp;
    return shards ? 3 : asked_.layout.zero;
  }

  // More micro-batches need less memory, so the fewest that fit are found by halving.
  std::optional<std::string> fewest_micro(bool async, std::int64_t zero, const std::vector<Recompute>& levels) {
    const Recompute most = std::max(levels.back(), asked_.memory.recompute);
    if (levels.back() < asked_.memory.recompute || micros_.empty()) return std::nullopt;
    if (!bytes_of({async, zero, micros_.back(), most})) return std::nullopt;
    const auto enough = std::ranges::partition_point(micros_, [&](std::int64_t micro) {
      return !bytes_of({async, zero, micro, most});
    });
    for (const Recompute level : levels)
      if (level >= asked_.memory.recompute)
        if (auto found = text_of({async, zero, *enough, level})) return found;
    return std::nullopt;
  }

  RunSpec with(const Choice& choice) const {
    RunSpec spec = asked_;
    spec.train.async_save = choice.async_save;
    spec.layout.micro = choice.micro;
    if (choice.recompute != asked_.memory.recompute)  // of all blocks
      spec.memory = {.recompute = choice.recompute, .gathered = asked_.memory.gathered};
    if (choice.zero != asked_.layout.zero) {
      spec.layout.zero = choice.zero;
      spec.layout.grad_sync = LayoutSpec::usual_sync(choice.zero);
    }
    return spec;
  }

  // Bytes of the fullest rank, where the run is valid and fits.
  std::optional<std::int64_t> bytes_of(const Choice& choice) const {
    const RunSpec spec = with(choice);
    if (!is_allowed(spec)) return std::nullopt;
    const std::vector<Plan> plans = plan_stages(spec);
    const Plan& plan = fullest(plans);
    return plan.peak + plan.outside <= available_ ? std::optional(plan.peak + plan.outside) : std::nullopt;
  }

  std::optional<std::string> text_of(const Choice& choice) const {
    const std::optional<std::int64_t> bytes = bytes_of(choice);
    if (!bytes) return std::nullopt;
    const RunSpec spec = with(choice);
    std::vector<std::string> sets;
    const auto say = [&](std::string_view key, const auto& value, bool changed) {
      if (changed) sets.push_back(fmt::format("--set {}={}", key, value));
    };
    say("memory.recompute", name_of(spec.memory.recompute), spec.memory.recompute != asked_.memory.recompute);
    say("layout.zero", spec.layout.zero, spec.layout.zero != asked_.layout.zero);
    say("layout.micro", spec.layout.micro, spec.layout.micro != asked_.layout.micro);
    say("train.async_save", spec.train.async_save, spec.train.async_save != asked_.train.async_save);
    return fmt::format("{} fits: {}", fmt::join(sets, " "), byte_text(*bytes));
  }

  const RunSpec& asked_;
  const std::int64_t available_;
  const std::vector<std::int64_t> micros_;
};

}  // namespace

std::optional<std::string> settings_that_fit(const RunSpec& asked, std::int64_t available) {
  return Search(asked, available).run();
}

}  // namespace lockstep
