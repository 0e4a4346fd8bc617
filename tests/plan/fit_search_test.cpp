// What fits and costs least: the search's answer against every combination of levers, at limits from what the run asks
// for down to less than anything needs.
#include "plan/fit_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "plan/plan.h"
#include "spec/layout/layout_toml.h"
#include "spec/model/presets.h"
#include "spec/run/run_toml.h"

namespace lockstep::tests {
namespace {

RunSpec fitted_run(const std::string& layout) {
  RunSpec spec;
  spec.model = *preset("llama-1m");
  spec.model.layers = 12;  // so that a window is a small part of the state
  spec.data.synthetic = SyntheticSpec{.vocabulary = spec.model.vocabulary, .order = 1};
  spec.data.seq = 64;
  spec.train.global_batch = 16;
  spec.run.threads = 1;
  spec.layout = parse_layout(layout);
  return spec;
}

// Rates under which each lever costs something that shows, the same on every machine.
FitRates test_rates() {
  return {.machine = {.flops = 1e10, .bytes = 5e9},
          .kernel = 1e-6,
          .sent = 1e9,
          .latency = 2e-5,
          .moved = 1e8,
          .saved = 1e8,
          .source = "a test"};
}

struct Combination {
  RunSpec spec;
  int tier;
  std::int64_t bytes;
  double seconds;
};

// Of the optimizer's state, and of these beside it.
struct OffloadedState {
  double share = 0;
  bool gradients = false, parameters = false;
  bool by_small_windows() const { return gradients || parameters; }
};

std::vector<OffloadedState> all_offloaded_state() {
  std::vector<OffloadedState> all{{}};
  for (const bool gradients : {false, true})
    for (const bool parameters : {false, true})
      for (const double share : {0.25, 0.5, 0.75, 1.0}) all.push_back({share, gradients, parameters});
  return all;
}

int most_types(const RunSpec& asked, bool numbers) {
  return !numbers ? 0 : asked.precision.compute == Precision::bf16 ? 3 : 1;
}

// Every choice of every lever, planned, with no search at all. `numbers`: with the types of 16 bits, as many as there
// are, one after the other.
std::vector<Combination> all_combinations(const RunSpec& asked, bool numbers) {
  std::vector<Combination> all;
  const FitRates rates = test_rates();
  RunSpec waiting = asked;
  waiting.train.async_save = false;
  std::int64_t copy = 0;
  const std::vector<Plan> copied = plan_stages(asked), waited = plan_stages(waiting);
  for (std::size_t i = 0; i < copied.size(); ++i) copy = std::max(copy, copied[i].peak - waited[i].peak);
  const double saving = static_cast<double>(copy) / rates.saved / static_cast<double>(asked.train.steps);
  const bool narrow = asked.precision.compute == Precision::bf16;
  const int most = most_types(asked, numbers);
  const bool ranks = asked.layout.dp > 1;
  for (int types = 0; types <= most; ++types)
    for (const OffloadedState& offloaded : all_offloaded_state())
      for (const int way : {0, 1, 2, 3})
        for (const std::int64_t zero :
             ranks || offloaded.parameters ? std::vector<std::int64_t>{0, 1, 2, 3} : std::vector<std::int64_t>{0})
          for (const Recompute level : kRecomputes)
            for (const std::int64_t micro : {1, 2, 4, 8, 16}) {
              const bool async = way % 2 == 0, moves = way >= 2;
              if (micro < asked.layout.micro || micro * asked.layout.dp > 16 || (offloaded.share > 0 && async))
                continue;
              // Weights are offloaded where they are gathered, and gradients where no rank keeps all of them.
              if ((offloaded.parameters && zero < 3) || (offloaded.gradients && ranks && zero < 2)) continue;
              RunSpec spec = asked;
              if (types > 0) (narrow ? spec.precision.gradients : spec.precision.moments) = StateType::bf16;
              if (types > 1) spec.precision.moments = StateType::bf16;
              if (types > 2) spec.precision.master = StateType::bf16;
              if (offloaded.share > 0)
                spec.memory.offload_optimizer = Offload::disk, spec.memory.offload_share = offloaded.share;
              if (offloaded.gradients) spec.memory.offload_gradients = Offload::disk;
              if (offloaded.parameters) spec.memory.offload_parameters = Offload::disk;
              if (offloaded.by_small_windows()) spec.memory.offload_window = 8;
              if (moves) spec.memory.offload_activations = Offload::disk;
              spec.train.async_save = async;
              spec.layout.micro = micro;
              spec.layout.zero = zero;
              spec.layout.grad_sync = LayoutSpec::usual_sync(zero);
              spec.memory.recompute = level;
              const std::vector<Plan> stages = plan_stages(spec);
              const int late = offloaded.by_small_windows() ? 3 : offloaded.share > 0 || moves ? 1 : 0;
              all.push_back({.spec = spec,
                             .tier = types + late * (most + 1),
                             .bytes = fullest(stages).peak,
                             .seconds = step_cost(spec, stages, rates).seconds() + (async ? 0 : saving)});
            }
  return all;
}

RunSpec as_typed(const RunSpec& asked, const FitSetting& setting) {
  return parse_run_toml(to_toml(asked), "run", ".", setting.changes);
}

struct Searched {
  std::string name, layout;
  Precision compute = Precision::fp32;
  bool numbers = false;
};

class FitSearch : public ::testing::TestWithParam<Searched> {};

TEST_P(FitSearch, FindsTheCheapestOfAllCombinations) {
  RunSpec asked = fitted_run(GetParam().layout);
  asked.precision.compute = GetParam().compute;
  const std::vector<Combination> all = all_combinations(asked, GetParam().numbers);
  const auto [least, most] = std::ranges::minmax(all, {}, &Combination::bytes);
  const std::int64_t needed = fullest(plan_stages(asked)).peak;
  ASSERT_LT(least.bytes, needed * 3 / 4);
  std::set<std::string> keys;
  std::pair<int, double> before{0, 0};
  constexpr int kLimits = 24;
  for (int i = 0; i <= kLimits; ++i) {
    const std::int64_t limit = needed - (needed - least.bytes) * i / kLimits;
    const FitResult found = search_fit(asked, {.device = limit}, test_rates(), GetParam().numbers);
    ASSERT_TRUE(found.cheapest) << limit;
    EXPECT_EQ(found.cheapest->changes.empty(), i == 0);
    EXPECT_LE(found.cheapest->device, limit);
    EXPECT_EQ(fullest(plan_stages(as_typed(asked, *found.cheapest))).peak, found.cheapest->device)
        << found.cheapest->text();
    if (i == 0) continue;
    const std::pair answer{found.cheapest->tier, found.cheapest->seconds};
    const MemorySpec typed = as_typed(asked, *found.cheapest).memory;
    EXPECT_EQ(found.cheapest->tier / (most_types(asked, GetParam().numbers) + 1) == 3,
              typed.offload_gradients != Offload::none || typed.offload_parameters != Offload::none)
        << found.cheapest->text();
    for (const Combination& other : all) {
      if (other.bytes > limit) continue;
      EXPECT_LE(answer, std::pair(other.tier, other.seconds * (1 + 1e-12)))
          << found.cheapest->text() << " at " << limit << ", but also " << to_toml(other.spec);
    }
    EXPECT_GE(answer, before) << "less memory, and a cheaper setting: " << found.cheapest->text();
    before = answer;
    for (const FitSetting& setting : found.too_large) {
      EXPECT_GT(setting.device, limit) << setting.text();
      EXPECT_LE(std::pair(setting.tier, setting.seconds), answer) << setting.text();
      EXPECT_EQ(fullest(plan_stages(as_typed(asked, setting))).peak, setting.device) << setting.text();
    }
    for (const std::string& change : found.cheapest->changes) keys.insert(change.substr(0, change.find('=')));
  }
  EXPECT_THAT(keys, ::testing::IsSupersetOf({"layout.micro", "memory.recompute", "train.async_save", "layout.zero",
                                             "memory.offload_optimizer", "memory.offload_parameters"}));
  // A stage of the pipeline has few more blocks than the four whose gradients have room.
  EXPECT_EQ(keys.contains("memory.offload_gradients"), asked.layout.pp == 1);

  const FitResult none = search_fit(asked, {.device = least.bytes - 1}, test_rates(), GetParam().numbers);
  EXPECT_FALSE(none.cheapest);
  EXPECT_EQ(none.least.device, least.bytes) << none.least.text();
}

INSTANTIATE_TEST_SUITE_P(Runs, FitSearch,
                         ::testing::Values(Searched{"OneRank", "dp=1"}, Searched{"Dp", "dp=4"},
                                           Searched{"Pipeline", "pp=2,micro=2"},
                                           Searched{"Fp32Numbers", "dp=2", Precision::fp32, true},
                                           Searched{"Bf16Numbers", "dp=2", Precision::bf16, true}),
                         [](const auto& info) { return info.param.name; });

// Numbers are changed only where that is allowed, and state is offloaded only where nothing else helps.
TEST(FitTiers, NumbersChangeOnlyWhereAllowedAndOffloadComesLast) {
  RunSpec asked = fitted_run("dp=1");
  asked.precision.compute = Precision::bf16;
  asked.train.global_batch = 1;
  asked.train.save_last = false;
  const auto bytes = [&](const std::vector<std::string>& sets) {
    return fullest(plan_stages(parse_run_toml(to_toml(asked), "run", ".", sets))).peak;
  };
  const std::int64_t deepest = bytes({"memory.recompute=full"});
  const std::int64_t gradients = bytes({"memory.recompute=full", "precision.gradients=bf16"});
  const std::int64_t offloaded = bytes({"memory.recompute=full", "memory.offload_optimizer=disk"});
  ASSERT_LT(gradients, deepest);
  ASSERT_LT(offloaded, deepest);
  const FitLimits limits{.device = std::max(gradients, offloaded)};
  const FitResult kept = search_fit(asked, limits, test_rates());
  ASSERT_TRUE(kept.cheapest);
  EXPECT_THAT(kept.cheapest->text(), ::testing::HasSubstr("--set memory.offload_optimizer=disk"));
  EXPECT_THAT(kept.cheapest->text(), ::testing::Not(::testing::HasSubstr("precision")));
  EXPECT_GT(kept.cheapest->disk, 0);
  const FitResult changed = search_fit(asked, limits, test_rates(), true);
  ASSERT_TRUE(changed.cheapest);
  EXPECT_THAT(changed.cheapest->text(), ::testing::HasSubstr("--set precision.gradients=bf16"));
  EXPECT_THAT(changed.cheapest->text(), ::testing::Not(::testing::HasSubstr("offload")));

  // A disk that is too small for it, and a run that offloads as much as there is already.
  EXPECT_FALSE(search_fit(asked, {.device = limits.device, .disk = 1}, test_rates()).cheapest);
  RunSpec everything = asked;
  everything.memory = {.recompute = Recompute::full,
                       .offload_optimizer = Offload::disk,
                       .offload_gradients = Offload::disk,
                       .offload_parameters = Offload::disk,
                       .offload_activations = Offload::disk};
  everything.layout = parse_layout("zero=3");
  const std::int64_t least = fullest(plan_stages(everything)).peak;
  EXPECT_FALSE(search_fit(everything, {.device = least - 1}, test_rates()).cheapest);
  asked.memory.offload_optimizer = Offload::disk;
  asked.memory.offload_share = 0.25;
  const FitResult more = search_fit(asked, {.device = offloaded}, test_rates());
  ASSERT_TRUE(more.cheapest);
  EXPECT_THAT(more.cheapest->text(), ::testing::HasSubstr("--set memory.offload_share="));
  EXPECT_EQ(fullest(plan_stages(as_typed(asked, *more.cheapest))).peak, more.cheapest->device);
}

// Where activations are what does not fit they are offloaded, of as few blocks as are needed.
TEST(FitTiers, ActivationsAreOffloadedBesideOptimizerState) {
  RunSpec asked = fitted_run("dp=1");
  asked.train.global_batch = 1;
  asked.train.async_save = false;
  asked.data.seq = 512;
  const auto bytes = [&](const std::vector<std::string>& sets) {
    return fullest(plan_stages(parse_run_toml(to_toml(asked), "run", ".", sets))).peak;
  };
  const std::int64_t deepest = bytes({"memory.recompute=full"});
  const std::int64_t all = bytes({"memory.recompute=full", "memory.offload_activations=disk"});
  ASSERT_LT(all, deepest);
  const FitLimits limits{.device = (all + deepest) / 2};
  const FitResult found = search_fit(asked, limits, test_rates());
  ASSERT_TRUE(found.cheapest);
  EXPECT_THAT(found.cheapest->text(), ::testing::AllOf(::testing::HasSubstr("--set memory.offload_activations=disk"),
                                                       ::testing::HasSubstr("--set memory.offload_blocks="),
                                                       ::testing::Not(::testing::HasSubstr("offload_optimizer"))));
  RunSpec fewer = as_typed(asked, *found.cheapest);
  EXPECT_EQ(fullest(plan_stages(fewer)).peak, found.cheapest->device);
  EXPECT_EQ(2 * plan_stages(fewer)[0].moved_activations, found.cheapest->moved);
  ASSERT_GT(--fewer.memory.offload_blocks, 0);
  EXPECT_GT(fullest(plan_stages(fewer)).peak, limits.device);

  asked.memory.offload_activations = Offload::disk;  // of all blocks already
  const FitResult more = search_fit(asked, {.device = all - 1}, test_rates());
  ASSERT_TRUE(more.cheapest);
  EXPECT_THAT(more.cheapest->text(), ::testing::AllOf(::testing::HasSubstr("offload_optimizer"),
                                                      ::testing::Not(::testing::HasSubstr("offload_activations"))));
}

// Of the level that is needed, as few blocks as are needed.
TEST(FitBlocks, OneFewerDoesNotFit) {
  RunSpec asked = fitted_run("dp=1");
  asked.model.layers = 8;
  asked.train.global_batch = 1;
  asked.train.async_save = false;
  asked.data.seq = 512;
  const auto bytes = [&](std::int64_t blocks) {
    RunSpec spec = asked;
    spec.memory.recompute = Recompute::full;
    spec.memory.recompute_blocks = blocks;
    return fullest(plan_stages(spec)).peak;
  };
  RunSpec projections = asked;
  projections.memory.recompute = Recompute::projections;
  const std::int64_t others = fullest(plan_stages(projections)).peak;
  int seen = 0;
  for (std::int64_t blocks = 2; blocks < 8; ++blocks) {
    if (bytes(blocks) >= others || bytes(blocks) == bytes(blocks - 1)) continue;
    const FitResult found = search_fit(asked, {.device = bytes(blocks)}, test_rates());
    ASSERT_TRUE(found.cheapest);
    EXPECT_EQ(found.cheapest->text(),
              fmt::format("--set memory.recompute=full --set memory.recompute_blocks={}", blocks));
    EXPECT_EQ(found.cheapest->device, bytes(blocks));
    ++seen;
  }
  EXPECT_GT(seen, 0);
}

TEST(FitCost, IsTheSumOfItsParts) {
  RunSpec spec = fitted_run("pp=2,micro=4");
  Plan first, second;
  first.executed = {
      .flops = 3'000, .matmul_flops = 2'000, .bytes_read = 10, .bytes_written = 10, .matmul_bytes = 10, .calls = 7};
  second.moved = {.to_device = 200, .from_device = 100};
  second.moved_activations = 100;  // and back
  const FitRates rates{.machine = {.flops = 1'000, .bytes = 1e9}, .kernel = 0.1, .moved = 1'000, .source = ""};
  const StepCost cost = step_cost(spec, {first, second}, rates);
  EXPECT_DOUBLE_EQ(cost.busy, 3.7);
  EXPECT_DOUBLE_EQ(cost.stretch, 5.0 / 4);  // 1f1b: a bubble of (pp − 1) / (micro + pp − 1)
  EXPECT_DOUBLE_EQ(cost.beside, 0.5);
  EXPECT_DOUBLE_EQ(cost.seconds(), 3.7 * 1.25 + 0.5);
}

// The windows of blocks that are larger than them take memory too.
TEST(FitSearchOfWindows, MakesThemSmallerWhereNothingElseFits) {
  RunSpec asked = fitted_run("micro=16");
  asked.model.width = 1024;
  asked.model.heads = asked.model.kv_heads = 8;
  asked.model.ffn_width = 4096;
  asked.memory.recompute = Recompute::full;
  asked.memory.offload_activations = Offload::disk;
  asked.train.async_save = false;
  RunSpec all = asked;
  all.memory.offload_optimizer = Offload::disk;
  const std::int64_t usual = fullest(plan_stages(all)).peak;
  const FitResult before = search_fit(asked, {.device = usual}, test_rates()),
                  after = search_fit(asked, {.device = usual - 1}, test_rates());
  ASSERT_TRUE(before.cheapest && after.cheapest);
  EXPECT_THAT(before.cheapest->text(), ::testing::Not(::testing::HasSubstr("offload_window")));
  EXPECT_THAT(after.cheapest->text(), ::testing::HasSubstr("--set memory.offload_optimizer=disk"));
  EXPECT_THAT(after.cheapest->text(), ::testing::HasSubstr("--set memory.offload_window=8"));
  EXPECT_EQ(fullest(plan_stages(as_typed(asked, *after.cheapest))).peak, after.cheapest->device);
  EXPECT_LT(after.cheapest->device, usual);
}

// The last tier: nothing of a unit stays but what is worked on. It needs ZeRO 3 for its weights, on one rank too.
TEST(FitSearchOfGradientsAndWeights, IsTriedWhereStateAndActivationsAreNotEnough) {
  RunSpec asked = fitted_run("micro=16");
  asked.model.layers = 24;
  asked.train.async_save = false;
  asked.memory.recompute = Recompute::full;
  asked.memory.offload_activations = Offload::disk;
  RunSpec state = asked;
  state.memory.offload_optimizer = Offload::disk;
  state.memory.offload_window = 8;
  const std::int64_t enough = fullest(plan_stages(state)).peak;
  const FitResult before = search_fit(asked, {.device = enough}, test_rates());
  ASSERT_TRUE(before.cheapest);
  EXPECT_THAT(before.cheapest->text(), ::testing::Not(::testing::ContainsRegex("offload_(gradients|parameters)")));

  RunSpec everything = state;
  everything.layout.zero = 3;
  everything.layout.grad_sync = LayoutSpec::usual_sync(3);
  everything.memory.offload_gradients = everything.memory.offload_parameters = Offload::disk;
  const std::int64_t least = fullest(plan_stages(everything)).peak;
  ASSERT_LT(least, enough);
  const FitResult found = search_fit(asked, {.device = least}, test_rates());
  ASSERT_TRUE(found.cheapest);
  EXPECT_EQ(found.cheapest->text(),
            "--set layout.zero=3 --set memory.offload_optimizer=disk --set memory.offload_gradients=disk "
            "--set memory.offload_parameters=disk --set memory.offload_window=8");
  EXPECT_EQ(as_typed(asked, *found.cheapest), everything);
  EXPECT_EQ(found.cheapest->device, least);
  EXPECT_FALSE(search_fit(asked, {.device = least - 1}, test_rates()).cheapest);
  EXPECT_FALSE(search_fit(asked, {.device = least, .disk = found.cheapest->disk - 1}, test_rates()).cheapest);

  // In between one of the two kinds is enough.
  std::set<std::string> between;
  for (int i = 1; i < 12; ++i) {
    const std::int64_t limit = least + (enough - least) * i / 12;
    const FitResult part = search_fit(asked, {.device = limit}, test_rates());
    ASSERT_TRUE(part.cheapest);
    EXPECT_LE(fullest(plan_stages(as_typed(asked, *part.cheapest))).peak, limit) << part.cheapest->text();
    EXPECT_LE(part.cheapest->moved, found.cheapest->moved) << part.cheapest->text();
    between.insert(part.cheapest->text());
  }
  EXPECT_THAT(between, ::testing::Contains(::testing::Not(::testing::HasSubstr("offload_gradients"))));
}

// In bf16 a weight has 2 bytes and its gradient 4: where these are enough, weights stay, and ZeRO as it was.
TEST(FitSearchOfGradientsAndWeights, TakesTheKindThatIsEnough) {
  RunSpec asked = fitted_run("micro=16");
  asked.model.layers = 24;
  asked.precision.compute = Precision::bf16;
  asked.train.async_save = false;
  asked.memory.recompute = Recompute::full;
  asked.memory.offload_activations = Offload::disk;
  RunSpec gradients = asked;
  gradients.memory.offload_optimizer = gradients.memory.offload_gradients = Offload::disk;
  gradients.memory.offload_window = 8;
  RunSpec weights = gradients;
  weights.memory.offload_gradients = Offload::none;
  weights.memory.offload_parameters = Offload::disk;
  weights.layout.zero = 3;
  weights.layout.grad_sync = LayoutSpec::usual_sync(3);
  const std::int64_t enough = fullest(plan_stages(gradients)).peak;
  ASSERT_LT(enough, fullest(plan_stages(weights)).peak);
  const FitResult found = search_fit(asked, {.device = enough}, test_rates());
  ASSERT_TRUE(found.cheapest);
  EXPECT_EQ(as_typed(asked, *found.cheapest), gradients) << found.cheapest->text();
}

// What is offloaded already stays so, where it is, and what --set of another kind would take from the run file is kept.
TEST(FitSearchOfGradientsAndWeights, KeepsWhatTheRunOffloadsAlready) {
  RunSpec asked = fitted_run("micro=16");
  asked.model.layers = 24;
  asked.train.async_save = false;
  asked.memory.recompute = Recompute::full;
  asked.memory.offload_activations = Offload::disk;
  asked.memory.offload_optimizer = Offload::disk;
  asked.memory.offload_window = 2;
  asked.memory.offload_folder = "/elsewhere";
  RunSpec weights = asked;
  weights.layout.zero = 3;
  weights.layout.grad_sync = LayoutSpec::usual_sync(3);
  weights.memory.offload_parameters = Offload::disk;
  const std::int64_t enough = fullest(plan_stages(weights)).peak;
  ASSERT_LT(enough, fullest(plan_stages(asked)).peak);
  const FitResult found = search_fit(asked, {.device = enough}, test_rates());
  ASSERT_TRUE(found.cheapest);
  EXPECT_EQ(found.cheapest->text(),
            "--set layout.zero=3 --set memory.offload_parameters=disk --set memory.offload_window=2 "
            "--set memory.offload_folder=/elsewhere");
  EXPECT_EQ(as_typed(asked, *found.cheapest), weights);

  asked.memory.offload_share = 0.5;
  const FitResult half = search_fit(asked, {.device = enough}, test_rates());
  ASSERT_TRUE(half.cheapest);
  RunSpec typed = as_typed(asked, *half.cheapest);
  EXPECT_GE(typed.memory.offload_share, 0.5) << half.cheapest->text();
  EXPECT_EQ(typed.memory.offload_window, 2) << half.cheapest->text();
  EXPECT_EQ(typed.memory.offload_folder, "/elsewhere") << half.cheapest->text();
  EXPECT_LE(fullest(plan_stages(typed)).peak, enough);
}

// Where there is no other state: sgd without momentum. A part of the units, where that is enough.
TEST(FitSearchOfGradientsAndWeights, GoAloneByShares) {
  RunSpec plain = fitted_run("micro=16");
  plain.model.layers = 24;
  plain.train.async_save = false;
  plain.memory.recompute = Recompute::full;
  plain.memory.offload_activations = Offload::disk;
  plain.optimizer.kind = OptimizerKind::sgd;
  plain.optimizer.momentum = 0;
  const std::int64_t needed = fullest(plan_stages(plain)).peak;
  std::set<double> shares;
  for (int i = 1; i < 8; ++i) {
    const FitResult alone = search_fit(plain, {.device = needed - needed * i / 20}, test_rates());
    ASSERT_TRUE(alone.cheapest) << i;
    EXPECT_THAT(alone.cheapest->text(), ::testing::ContainsRegex("offload_(gradients|parameters)=disk"));
    EXPECT_THAT(alone.cheapest->text(), ::testing::Not(::testing::HasSubstr("offload_optimizer")));
    shares.insert(as_typed(plain, *alone.cheapest).memory.offload_share);
  }
  EXPECT_GT(shares.size(), 2U) << ::testing::PrintToString(shares);
}

// A GPU's go to its host, within what that has.
TEST(FitSearchOfGradientsAndWeights, GoToTheHostOfAGpu) {
  RunSpec asked = fitted_run("micro=16");
  asked.model.layers = 24;
  asked.run.device = RunDevice::cuda;
  asked.train.async_save = false;
  asked.memory.recompute = Recompute::full;
  RunSpec everything = asked;
  everything.layout.zero = 3;
  everything.layout.grad_sync = LayoutSpec::usual_sync(3);
  everything.memory.offload_optimizer = everything.memory.offload_activations = Offload::host;
  everything.memory.offload_gradients = everything.memory.offload_parameters = Offload::host;
  everything.memory.offload_window = 8;
  const Plan plan = fullest(plan_stages(everything));
  const FitLimits limits{.device = plan.peak + plan.outside, .host = plan.host};
  const FitResult found = search_fit(asked, limits, test_rates());
  ASSERT_TRUE(found.cheapest);
  EXPECT_THAT(found.cheapest->text(), ::testing::AllOf(::testing::HasSubstr("memory.offload_gradients=host"),
                                                       ::testing::HasSubstr("memory.offload_parameters=host")));
  EXPECT_EQ(as_typed(asked, *found.cheapest).memory.offload_gradients, Offload::host);
  EXPECT_FALSE(search_fit(asked, {.device = limits.device, .host = limits.host / 4}, test_rates()).cheapest);
}

}  // namespace
}  // namespace lockstep::tests
