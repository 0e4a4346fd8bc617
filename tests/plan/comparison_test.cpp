// What every layout costs is known before: bytes and messages of real ranks are those that meta counted, for all of
// them.
#include "plan/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "base/error.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

// Parameters that no number of ranks divides; tied, a gradient has two homes.
RunSpec indivisible_run(const PrecisionSpec& precision = {}, bool tied = true) {
  RunSpec spec;
  spec.model = tiny_specs()[tied ? 1 : 0].spec;
  spec.data.synthetic = SyntheticSpec{.vocabulary = spec.model.vocabulary, .order = 1};
  spec.data.seq = 5;
  spec.precision = precision;
  spec.run.threads = 1;
  return spec;
}

// Everything that data parallel can be over so many ranks, and what is usual of layers that are cut.
std::vector<LayoutSpec> every_layout(std::int64_t ranks, std::int64_t micro) {
  RunSpec run = indivisible_run();
  run.layout.micro = micro;
  std::vector<LayoutSpec> all = usual_layouts(run, ranks);
  const auto add = [&](LayoutSpec layout) {
    layout.dp = ranks;
    layout.micro = micro;
    all.push_back(layout);
  };
  for (const GradSync sync : kGradSyncs) {
    add({.zero = 3, .grad_sync = sync, .overlap = Switch::off, .reshard = Reshard::never});
    for (std::int64_t shard = 2; shard < ranks; ++shard)
      for (const std::int64_t zero : {1, 2, 3})
        if (ranks % shard == 0) add({.zero = zero, .grad_sync = sync, .shard = shard});
  }
  add({.grad_sync = GradSync::micro});
  return all;
}

void expect_as_planned(const RunSpec& run, const ComparedLayout& one) {
  const std::string what = fmt::format("{}, {}", to_text(one.layout), name_of(run.precision.compute));
  EXPECT_TRUE(one.ok()) << what;
  const RunSpec spec = laid_out(run, one.layout);
  for (std::size_t r = 0; r < one.ranks.size(); ++r) {
    const Plan plan = plan_run(spec, static_cast<int>(r));
    const ComparedRank& rank = one.ranks[r];
    EXPECT_EQ(rank.rows, plan.rows) << what << ", rank " << r;
    EXPECT_EQ(rank.peaks, plan.peaks) << what << ", rank " << r;
    EXPECT_EQ(rank.peak, plan.peak) << what << ", rank " << r;
    EXPECT_TRUE(rank.messages == plan.messages) << what << ", rank " << r;
    EXPECT_LE(rank.peak, one.fullest_rank().peak);
    EXPECT_LE(rank.messages.total().bytes_sent, one.sender_rank().messages.total().bytes_sent);
  }
}

TEST(Costs, AreThoseThatMetaCountedInEveryCombination) {
  const PrecisionSpec precisions[] = {
      Precision::fp32, Precision::bf16, {Precision::bf16, StateType::bf16, StateType::full, StateType::bf16}};
  int combinations = 0;
  for (std::int64_t ranks = 1; ranks <= 8; ++ranks)
    for (const std::int64_t micro : {1, 3})
      for (int turn = 0; turn < (ranks == 4 || ranks > 5 ? 1 : 2); ++turn) {  // of the three, in turns
        const PrecisionSpec& precision = precisions[(ranks + micro / 3 + turn) % 3];
        const bool tied = micro > 1;
        RunSpec run = indivisible_run(precision, tied);
        run.train.global_batch = ranks * micro;
        const Comparison comparison = compare_costs(run, every_layout(ranks, micro), {.steps = 1});
        for (const ComparedLayout& one : comparison.layouts) {
          ++combinations;
          expect_as_planned(run, one);
          if (one.layout.dp_kind == DpKind::central || one.layout.pp > 1) continue;
          for (const ComparedRank& rank : one.ranks) {
            EXPECT_EQ(rank.rows, one.ranks[0].rows) << to_text(one.layout) << ": all ranks hold the same";
            // Pieces that are not whole blocks: of all ranks, of a tied weight, of three groups.
            if (one.layout.zero == 0 || (tied && one.layout.passes_on())) continue;
            if (!std::has_single_bit(static_cast<std::uint64_t>(ranks / one.layout.shards()))) continue;
            EXPECT_TRUE(rank.messages.tensors == one.ranks[0].messages.tensors)
                << to_text(one.layout) << ": all ranks send the same";
          }
        }
      }
  EXPECT_GE(combinations, 300);
}

// The first ranks have more samples, and more activations.
TEST(Costs, OfUnevenPartsAreKnownToo) {
  RunSpec run = indivisible_run();
  run.train.global_batch = 14;
  std::vector<LayoutSpec> layouts = every_layout(5, 2);
  for (LayoutSpec& layout : layouts) layout.uneven = Switch::on;
  const Comparison comparison = compare_costs(run, layouts, {.steps = 1});
  ASSERT_EQ(comparison.layouts.size(), layouts.size());
  for (const ComparedLayout& one : comparison.layouts) {
    expect_as_planned(run, one);
    EXPECT_LT(one.ranks.back().peak, one.ranks.front().peak);
    EXPECT_LT(one.mean_peak(), static_cast<double>(one.fullest_rank().peak));
  }
}

TEST(Costs, OfCentralFallOnRankZero) {
  RunSpec run = indivisible_run();
  run.train.global_batch = 6;
  const Comparison comparison = compare_costs(run, {{.dp = 3, .dp_kind = DpKind::central}, {.dp = 3}}, {.steps = 2});
  const ComparedLayout &central = comparison.layouts[0], &ddp = comparison.layouts[1];
  EXPECT_EQ(central.fullest, 0);
  EXPECT_EQ(central.sender, 0);
  EXPECT_EQ(central.sender_rank().messages.sent(CommOp::broadcast), 2 * central.sender_plan.stored);
  EXPECT_EQ(ddp.fullest_rank().peak, static_cast<std::int64_t>(ddp.mean_peak()));
  EXPECT_EQ(central.loss, ddp.loss);
  for (const ComparedLayout& one : comparison.layouts) {
    EXPECT_GT(one.step_seconds(), 0);
    EXPECT_GT(one.exposed_seconds(), 0);
    EXPECT_LE(one.exposed_seconds(), one.step_seconds());
  }
}

TEST(Costs, OfALayoutThatCannotBeAreRefusedBeforeAnythingRuns) {
  RunSpec run = indivisible_run();
  run.train.global_batch = 4;
  int begun = 0;
  const ComparisonOptions options{.begins = [&](const LayoutSpec&) { ++begun; }};
  EXPECT_THROW(compare_costs(run, {{.dp = 2}, {.dp = 3}}, options), UserError);
  EXPECT_EQ(begun, 0);
}

TEST(Costs, AreLeftOutWhereTheyDoNotFit) {
  RunSpec run = indivisible_run();
  run.train.global_batch = 2;
  run.model.ffn_width = 1'000'000'000;
  const Comparison comparison = compare_costs(run, {{.dp = 2}}, {.steps = 1});
  EXPECT_TRUE(comparison.layouts.empty());
  ASSERT_EQ(comparison.left_out.size(), 1u);
  EXPECT_THAT(comparison.left_out[0].why, ::testing::HasSubstr("in all, and"));
}

TEST(Costs, AreNotWaitedForWhenAskedToStop) {
  RunSpec run = indivisible_run();
  run.train.global_batch = 3;
  int asked = 0;
  const Comparison comparison =
      compare_costs(run, {{.dp = 3}, {.dp = 3, .zero = 1}, {.dp = 3, .zero = 3}},
                    {.steps = 1000, .rounds = 1, .wants_stop = [&] { return ++asked > 1004; }});
  EXPECT_TRUE(comparison.stopped);
  EXPECT_EQ(comparison.layouts.size(), 1u);
  EXPECT_LT(asked, 1010);
}

// A model whose heads go to 2, 4 and 8 ranks, or to as many as there are.
RunSpec cut_run(const ModelSpec& model, std::int64_t kv_heads) {
  RunSpec run = indivisible_run();
  run.model = model;
  run.model.heads = 8;
  run.model.kv_heads = kv_heads;
  if (model.family == Family::gpt2) run.model.head_width = 3;
  run.data.seq = 8;
  run.train.global_batch = 8;
  return run;
}

TEST(Costs, OfLayersCutBetweenRanksAreThoseThatMetaCounted) {
  const std::vector<LayoutSpec> layouts{{.tp = 2},
                                        {.tp = 4, .micro = 2},
                                        {.tp = 4, .sp = Switch::off, .overlap = Switch::off},
                                        {.tp = 8, .tp_chunks = 2},
                                        {.dp = 2, .tp = 2, .micro = 2},
                                        {.dp = 2, .tp = 4, .sp = Switch::off, .zero = 1},
                                        {.dp = 2, .tp = 2, .micro = 2, .zero = 2},
                                        {.dp = 4, .tp = 2, .micro = 2, .zero = 3},
                                        {.dp = 4, .tp = 2, .sp = Switch::off, .zero = 3, .shard = 2}};
  for (const NamedSpec& model : {tiny_specs()[1], tiny_specs()[5], tiny_specs()[6]}) {
    const RunSpec run = cut_run(model.spec, model.spec.family == Family::gpt2 ? 8 : 2);
    const Comparison comparison = compare_costs(run, layouts, {.steps = 1});
    ASSERT_EQ(comparison.layouts.size(), layouts.size());
    for (const ComparedLayout& one : comparison.layouts) {
      expect_as_planned(run, one);
      EXPECT_EQ(std::ssize(one.ranks), one.layout.ranks());
      const StepMessages& sent = one.sender_rank().messages;
      EXPECT_GT(sent.total(MeshAxis::tp).sent, 0) << to_text(one.layout);
      EXPECT_EQ(sent.total(MeshAxis::dp).sent > 0, one.layout.dp > 1) << to_text(one.layout);
      EXPECT_LT(one.sender_plan.layer_part, one.sender_plan.stored);
      EXPECT_NEAR(one.loss, comparison.layouts[0].loss, 1e-5);
    }
  }
}

// Without sequence parallelism activations are summed where the embedding and each of a block's two layers end, and
// gradients of them where those began: of 4 ranks each sends 2·3/4 of such a sum. The norms of all ranks are whole.
TEST(Costs, OfCutLayersAreTheirSums) {
  const RunSpec run = cut_run(tiny_specs()[0].spec, 8);
  const Comparison comparison = compare_costs(
      run, {{.tp = 4, .sp = Switch::off, .micro = 2}, {.dp = 2, .tp = 4, .sp = Switch::off, .micro = 2}}, {.steps = 1});
  const std::int64_t C = run.model.width, L = run.model.layers;
  for (const ComparedLayout& one : comparison.layouts) {
    const std::int64_t tokens = run.train.global_batch * run.data.seq / one.layout.dp;  // of a group, in two parts
    int found = 0;
    for (const StepMessages::Row& row : one.sender_rank().messages.tensors) {
      if (row.axis != MeshAxis::tp || row.op != CommOp::all_reduce) continue;
      ++found;
      EXPECT_EQ(row.dtype, DType::f32);
      EXPECT_EQ(row.of.sent, (1 + 2 * L + 2 * L + 1) * tokens * C * 2 * 3 / 4) << to_text(one.layout);
    }
    EXPECT_EQ(found, 1);
  }
}

TEST(UsualLayouts, AreThoseThatTheRanksAllow) {
  RunSpec run = indivisible_run();
  run.model.heads = run.model.kv_heads = 1;
  run.model.layers = 1;
  run.layout = {};
  EXPECT_EQ(usual_layouts(run, 1), std::vector{LayoutSpec{}});
  for (const std::int64_t ranks : {2, 3, 5, 7}) EXPECT_EQ(usual_layouts(run, ranks).size(), 10u) << ranks;
  run.layout.micro = 3;
  for (const auto& [ranks, shard] : {std::pair{4, 2}, {6, 2}, {8, 2}, {9, 3}, {16, 4}}) {
    const std::vector<LayoutSpec> all = usual_layouts(run, ranks);
    EXPECT_EQ(all.size(), 11u);
    EXPECT_EQ(all.back(), (LayoutSpec{.dp = ranks, .micro = 3, .zero = 3, .shard = shard}));
  }
}

TEST(UsualLayouts, CutLayersWhereHeadsAllowIt) {
  RunSpec run = cut_run(tiny_specs()[0].spec, 2);
  const auto cut = [&](std::int64_t ranks, std::int64_t seq) {
    run.data.seq = seq;
    std::vector<LayoutSpec> all = usual_layouts(run, ranks);
    std::erase_if(all, [](const LayoutSpec& layout) { return layout.tp == 1; });
    return all;
  };
  using All = std::vector<LayoutSpec>;
  EXPECT_EQ(cut(1, 8), All{});
  EXPECT_EQ(cut(2, 8), (All{{.tp = 2}, {.tp = 2, .sp = Switch::off}}));
  EXPECT_EQ(cut(3, 6), All{});
  EXPECT_EQ(cut(4, 8), (All{{.tp = 4}, {.tp = 4, .sp = Switch::off}, {.dp = 2, .tp = 2}}));
  EXPECT_EQ(cut(4, 5), cut(4, 8));  // whatever the length of a sample
  EXPECT_EQ(cut(5, 5), All{});
  EXPECT_EQ(cut(6, 6), (All{{.dp = 3, .tp = 2}}));
  EXPECT_EQ(cut(16, 16), (All{{.dp = 8, .tp = 2}}));
}

TEST(UsualLayouts, CutSamplesWhereTokensAndHeadsAllowIt) {
  RunSpec run = cut_run(tiny_specs()[0].spec, 2);
  const auto cut = [&](std::int64_t ranks, std::int64_t seq) {
    run.data.seq = seq;
    std::vector<std::string> all;
    for (const LayoutSpec& layout : usual_layouts(run, ranks))
      if (layout.cp > 1) all.push_back(to_text(layout));
    return all;
  };
  using All = std::vector<std::string>;
  EXPECT_EQ(cut(1, 8), All{});
  EXPECT_EQ(cut(2, 8), (All{"cp=2", "cp=2,cp_kind=ulysses"}));
  EXPECT_EQ(cut(2, 6), All{"cp=2,cp_kind=ulysses"});
  EXPECT_EQ(cut(3, 6), All{"cp=3"});
  EXPECT_EQ(cut(2, 5), All{});
}

}  // namespace
}  // namespace lockstep::tests
