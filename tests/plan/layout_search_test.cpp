// Layouts chosen by composed steps: the totals that they are composed to are those of full plans, the search finds what
// trying everything finds, and the walk splits what is too large.
#include "plan/layout_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>

#include "base/philox.h"
#include "plan/layout_walk.h"
#include "spec/layout/layout_toml.h"
#include "spec/model/presets.h"
#include "spec/run/run_extent.h"
#include "train/run_data.h"

namespace lockstep::tests {
namespace {

RunSpec searched_run(const std::string& preset_name, std::int64_t layers, std::int64_t seq, std::int64_t batch) {
  RunSpec run;
  run.model = *preset(preset_name);
  run.model.layers = layers;
  constexpr std::int64_t kMostSynthetic = 4096;
  if (run.model.vocabulary <= kMostSynthetic)
    run.data.synthetic = SyntheticSpec{.vocabulary = run.model.vocabulary, .order = 1};
  else
    run.data.example = true;
  run.data.seq = seq;
  run.train.global_batch = batch;
  run.train.async_save = false;
  run.precision.compute = Precision::bf16;
  run.run.device = RunDevice::cuda;
  return run;
}

// Blocks of a stage by what the plan says of it: "embedding to block.3, block.8 to head".
StageUnits units_of(const std::string& text, std::int64_t layers) {
  StageUnits units{.blocks = 0,
                   .embedding = text.find("embedding") != std::string::npos,
                   .head = text.find("head") != std::string::npos};
  std::size_t from = 0;
  while (from < text.size()) {
    std::size_t to = text.find(", ", from);
    if (to == std::string::npos) to = text.size();
    const std::string run = text.substr(from, to - from);
    const auto number = [&](const std::string& unit) {
      return unit == "embedding" ? -1 : unit == "head" ? layers : std::atoll(unit.c_str() + 6);
    };
    const std::size_t between = run.find(" to ");
    const std::int64_t first = number(run.substr(0, between));
    const std::int64_t last = between == std::string::npos ? first : number(run.substr(between + 4));
    units.blocks += std::min(last, layers - 1) - std::max<std::int64_t>(first, 0) + 1;
    from = to + 2;
  }
  return units;
}

TEST(ComposedStep, HasTheTotalsOfFullPlansOn200Layouts) {
  const MachineSpec machine = [] {
    MachineSpec m = find_machine("h100-sxm");
    m.nodes = 8;
    return m;
  }();
  int compared = 0;
  for (const auto& [name, layers] : {std::pair("llama-1m", 12), {"qwen2.5-0.5b", 8}, {"gpt2", 6}}) {
    const RunSpec run = searched_run(name, layers, 512, 64);
    const RunData data(run);
    UnitPrices prices(run, machine, data);
    std::vector<LayoutChoice> choices = layout_choices(run, machine);
    int of_model = 0;
    for (std::uint64_t draw = 0; of_model < 67 && draw < 2000; ++draw) {
      const LayoutChoice& choice = choices[philox(7, draw)[0] % choices.size()];
      const RunSpec spec = with_choice(run, choice);
      try {
        validate(spec, [](std::string_view, std::string_view) { return std::string(); });
      } catch (const UserError&) {
        continue;
      }
      const std::int64_t samples = run.train.global_batch / (choice.layout.dp * choice.layout.micro);
      const PricedUnits& units = prices.of(choice.layout, choice.recompute, samples);
      for (const Plan& plan : plan_stages(spec, data)) {
        StageUnits stage = units_of(plan.units, layers);
        stage.sends = sends_of(choice.layout, choice.layout.stage(plan.rank));
        const ComposedTotals composed = totals_of(units, stage, choice.layout);
        EXPECT_EQ(composed.matmul_flops, plan.executed.matmul_flops) << to_text(choice) << " " << plan.units;
        EXPECT_EQ(composed.elements, plan.layer_part) << to_text(choice) << " " << plan.units;
        EXPECT_EQ(composed.sent_cp, plan.messages.total(MeshAxis::cp).bytes_sent) << to_text(choice);
        if (!run.model.tied) {
          EXPECT_EQ(composed.sent_pp, plan.messages.total(MeshAxis::pp).bytes_sent) << to_text(choice);
        }
      }
      ++of_model;
      ++compared;
    }
  }
  EXPECT_GE(compared, 200);
}

// What the ranking relies on: composed times and bytes are near those of full plans and clocks.
TEST(ComposedStep, TimesAndBytesAreNearThoseInFull) {
  MachineSpec machine = find_machine("h100-sxm");
  machine.nodes = 2;
  const RunSpec run = searched_run("llama3-8b", 32, 4096, 64);
  const RunData data(run);
  UnitPrices prices(run, machine, data);
  LayoutTimer timer(run, machine, data);
  const std::vector<LayoutChoice> choices = layout_choices(run, machine);
  std::vector<double> seconds, bytes;
  for (std::uint64_t draw = 0; seconds.size() < 60 && draw < 1000; ++draw) {
    const LayoutChoice& choice = choices[philox(11, draw)[0] % choices.size()];
    const ComposedStep composed = compose(run, choice, prices);
    if (composed.bytes > 3 * machine.memory) continue;
    const std::optional<TimedLayout> timed = timer.time(choice);
    if (!timed) continue;
    seconds.push_back(composed.seconds / timed->predicted.step_seconds);
    bytes.push_back(static_cast<double>(composed.bytes) / static_cast<double>(timed->peak));
  }
  ASSERT_EQ(seconds.size(), 60u);
  for (std::vector<double>* ratios : {&seconds, &bytes}) {
    std::ranges::sort(*ratios);
    EXPECT_NEAR((*ratios)[30], 1, 0.05);
    EXPECT_GT((*ratios)[6], 0.8);
    EXPECT_LT((*ratios)[53], 1.25);
  }
}

TEST(ComposedStep, BlocksAreDealtSoThatTheSlowestChunkIsFast) {
  EXPECT_THAT(blocks_by_chunk(8, 4, 1, 0, 0), testing::ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(blocks_by_chunk(8, 1, 1, 5, 5), testing::ElementsAre(8));
  // A head as dear as two blocks: the last chunk has fewer.
  const std::vector<std::int64_t> blocks = blocks_by_chunk(14, 4, 1, 0, 2);
  EXPECT_THAT(blocks, testing::ElementsAre(4, 4, 4, 2));
}

TEST(LayoutSearch, FindsWhatTryingEverythingFinds) {
  MachineSpec machine = find_machine("h100-sxm");
  machine.nodes = 2;
  machine.devices_per_node = 4;
  machine.memory = std::int64_t{725} << 20;  // so that some layouts do not fit: 704 are taken already
  const RunSpec run = searched_run("llama-1m", 6, 256, 16);
  const RunData data(run);
  UnitPrices prices(run, machine, data);
  const ComposedSpace space = compose_all(run, machine, prices);
  LayoutTimer timer(run, machine, data);
  const LayoutSearch search = search_layouts(timer, space, {});
  ASSERT_FALSE(search.best.empty());
  // All of them, without recomputation twice over: that is what takes long.
  std::optional<TimedLayout> best;
  std::vector<LayoutChoice> all;
  for (const LayoutChoice& choice : space.choices)
    if (!choice.offload) all.push_back(choice);
  for (const std::optional<TimedLayout>& timed : timer.time_all(all))
    if (timed && timed->fits && (!best || timed->predicted.step_seconds < best->predicted.step_seconds)) best = timed;
  ASSERT_TRUE(best);
  EXPECT_LE(search.best.front().predicted.step_seconds, 1.01 * best->predicted.step_seconds)
      << to_text(search.best.front().choice) << " against " << to_text(best->choice);
  for (const TimedLayout& timed : search.best) EXPECT_LE(timed.peak, machine.memory) << to_text(timed.choice);
  EXPECT_TRUE(std::ranges::is_sorted(search.best, {}, [](const TimedLayout& t) { return t.predicted.step_seconds; }));
}

struct WalkCase {
  const char* name;
  std::int64_t layers, width, seq, batch;
  std::int64_t LayoutSpec::*axis;  // that it must end with
};

class WalkOfShapes : public testing::TestWithParam<WalkCase> {};

TEST_P(WalkOfShapes, EndsWithTheAxisThatIsTooLong) {
  const WalkCase& c = GetParam();
  RunSpec run = searched_run("llama-1m", c.layers, c.seq, c.batch);
  run.model.width = c.width;
  run.model.heads = run.model.kv_heads = c.width / 128;
  run.model.head_width = 128;
  run.model.ffn_width = 4 * c.width;
  run.model.max_positions = c.seq;
  const MachineSpec machine = [] {
    MachineSpec m = find_machine("h100-sxm");
    m.nodes = 8;
    return m;
  }();
  const RunData data(run);
  UnitPrices prices(run, machine, data);
  LayoutTimer timer(run, machine, data);
  const LayoutWalk walk = walk_layouts(timer, compose_all(run, machine, prices));
  ASSERT_TRUE(walk.result);
  const LayoutSpec& l = walk.result->choice.layout;
  EXPECT_GT(l.*c.axis, 1) << to_text(l);
  for (const auto axis : {&LayoutSpec::tp, &LayoutSpec::cp, &LayoutSpec::pp})
    EXPECT_LE(l.*axis, l.*c.axis) << to_text(l);
  EXPECT_TRUE(walk.result->fits);
}

INSTANTIATE_TEST_SUITE_P(Shapes, WalkOfShapes,
                         testing::Values(WalkCase{"wide", 4, 24576, 2048, 64, &LayoutSpec::tp},
                                         WalkCase{"deep", 512, 4096, 2048, 256, &LayoutSpec::pp},
                                         WalkCase{"long", 16, 2048, 1 << 20, 4, &LayoutSpec::cp}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(LayoutSearch, SaysWhatIsMissingWhereNothingFits) {
  MachineSpec machine = find_machine("h100-sxm");
  machine.nodes = 1;
  machine.memory = std::int64_t{3} << 29;
  const RunSpec run = searched_run("llama2-7b", 4, 512, 16);
  const RunData data(run);
  UnitPrices prices(run, machine, data);
  LayoutTimer timer(run, machine, data);
  const ComposedSpace space = compose_all(run, machine, prices);
  EXPECT_TRUE(search_layouts(timer, space, {}).best.empty());
  const std::optional<Missing> missing = what_is_missing(run, machine, data);
  ASSERT_TRUE(missing);
  EXPECT_GT(missing->smallest.peak, machine.memory);
  if (missing->nodes) {
    // What it names does fit, and half of it does not.
    MachineSpec larger = machine;
    larger.nodes = *missing->nodes;
    UnitPrices at(run, larger, data);
    LayoutTimer on(run, larger, data);
    EXPECT_FALSE(search_layouts(on, compose_all(run, larger, at), {}).best.empty());
  }
}

}  // namespace
}  // namespace lockstep::tests
