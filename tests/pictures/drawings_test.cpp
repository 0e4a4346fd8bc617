// The pictures say what the data structures do: ranks, shares of work, bytes and times, not only their bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "model/model.h"
#include "pictures/memory_picture.h"
#include "pictures/mesh_picture.h"
#include "pictures/ring_picture.h"
#include "pictures/tensor_parallel_picture.h"
#include "pictures/zero_picture.h"
#include "plan/plan.h"
#include "spec/layout/layout_toml.h"
#include "spec/layout/shard.h"
#include "spec/model/presets.h"
#include "svg_checks.h"

namespace lockstep::tests {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

TEST(MeshPicture, HasEveryRankOnceAndInOneGroupOfEachAxis) {
  for (const char* text : {"dp=1", "dp=2,pp=2,cp=2,tp=2", "dp=3,pp=2", "pp=4,tp=2", "dp=2,cp=3,tp=4"}) {
    const LayoutSpec layout = parse_layout(text);
    const std::string svg = mesh_picture(layout);
    for (std::int64_t r = 0; r < layout.ranks(); ++r)
      EXPECT_EQ(occurrences(svg, ">rank " + std::to_string(r) + "<"), 1u) << text;
    EXPECT_EQ(occurrences(svg, "<title>rank "), static_cast<std::size_t>(layout.ranks())) << text;
    constexpr std::size_t kAxes = 5;  // tp, cp, pp, dp, and dp × cp
    EXPECT_EQ(occurrences(svg, "class=\"step\""), static_cast<std::size_t>(layout.ranks()) * (1 + kAxes)) << text;
    expect_well_formed(svg);
  }
}

TEST(RingPicture, ZigZagGivesEveryRankTheSameWorkInEveryTurn) {
  for (const std::int64_t ranks : {2, 3, 4, 7}) {
    double zigzag = 0, plain = 0;
    for (const auto& turn : ring_work(ranks, true)) {
      EXPECT_THAT(turn, Each(2.0)) << ranks;
      for (const double work : turn) zigzag += work;
    }
    for (const auto& turn : ring_work(ranks, false))
      for (const double work : turn) plain += work;
    EXPECT_EQ(zigzag, 4 * plain) << ranks;  // a plain segment is two of the others, both ways
    EXPECT_EQ(ring_work(ranks, false).back()[0], 0) << "the first rank sees nothing of the last turn";
  }
}

TEST(RingPicture, AttendsToEveryPairOfSegmentsInExactlyOneTurn) {
  for (const std::size_t ranks : {2u, 4u, 5u}) {
    const std::string svg = ring_picture(static_cast<std::int64_t>(ranks));
    const std::size_t segments = 2 * ranks;
    EXPECT_EQ(occurrences(svg, "<rect class=\"step now\""), segments * (segments - 1) / 2) << ranks;
    EXPECT_EQ(occurrences(svg, "<polygon class=\"step now\""), segments) << ranks;
    expect_well_formed(svg);
  }
}

TEST(UlyssesPicture, EveryRankHasAsManyCellsBeforeAsAfter) {
  const std::string svg = ulysses_picture(4, 8);
  for (int r = 0; r < 4; ++r)  // 4 of 16 tokens with 8 heads, then 16 tokens with 2 of them
    EXPECT_EQ(occurrences(svg, "class=\"in\"") / 4, 4u * 8 + 16 * 2);
  EXPECT_THAT(svg, HasSubstr("token 15, head 0: rank 3</title>"));
  EXPECT_THAT(svg, HasSubstr("token 15, head 0: rank 0</title>"));
}

TEST(TensorParallelPicture, SplitsColumnsThenRowsAndTokensUnderSequenceParallelism) {
  const std::string svg = tensor_parallel_picture({.ranks = 2, .tokens = 8, .width = 6, .ffn_width = 10});
  EXPECT_EQ(occurrences(svg, ">rows 0 to 5, columns 5 to 9</title>"), 2u);  // the first product's, of rank 1
  EXPECT_EQ(occurrences(svg, ">rows 5 to 9, columns 0 to 5</title>"), 2u);  // the second's
  EXPECT_EQ(occurrences(svg, ">rows 4 to 7, columns 0 to 5</title>"), 2u);  // tokens: before and after, with sp alone
  EXPECT_EQ(occurrences(svg, ">all-reduce<"), 2u);
  EXPECT_EQ(occurrences(svg, ">reduce-scatter<"), 2u);
}

std::vector<ResidentUnit> units_of(const ModelSpec& spec) {
  const Model model(spec, 1, 1, DType::bf16);
  std::vector<ResidentUnit> units;
  for (int u = 0; u < model.units(); ++u)
    units.push_back({model.unit(u).layout().name(), model.unit(u).layout().owned()});
  return units;
}

TEST(ZeroPicture, TwoUnitsAreWholeWhereABlockComputesItsBackward) {
  const std::vector<ResidentUnit> units = units_of(*preset("llama-1m"));  // embedding, four blocks, head
  const std::vector<ResidencyMoment> moments = residency(units, parse_layout("dp=4,zero=3"), {});
  const auto stored = [&](std::size_t u) { return Shard{.index = 0, .count = 4}.padded(units[u].elements); };
  std::int64_t psi = 0;
  for (std::size_t u = 0; u < units.size(); ++u) psi += stored(u);
  for (const int block : {2, 3}) {
    const auto at = std::ranges::find(moments, Action{ActionKind::backward_input, block, 0}, &ResidencyMoment::action);
    ASSERT_NE(at, moments.end());
    std::set<std::size_t> whole;
    for (std::size_t u = 0; u < units.size(); ++u)
      if (at->weights[u]) whole.insert(u);
    const auto b = static_cast<std::size_t>(block);
    EXPECT_EQ(whole, (std::set<std::size_t>{b - 1, b}));
    // Its shard of everything, two units' weights and two units' gradients (of the unit after it and the one after
    // that).
    EXPECT_EQ(at->parameters + at->gradient + at->optimizer, 18 * psi / 4);
    EXPECT_EQ(at->gathered, 2 * (stored(b) + stored(b - 1)));
    EXPECT_EQ(at->summed, 4 * (stored(b + 1) + stored(b + 2)));
  }
}

TEST(ZeroPicture, BytesAreThoseOfTheLedger) {
  RunSpec spec;
  spec.model = *preset("llama-1m");
  spec.data.synthetic = SyntheticSpec{};
  spec.data.seq = 64;
  spec.train.global_batch = 4;
  spec.train.save_last = spec.train.async_save = false;
  spec.precision.compute = Precision::bf16;
  const std::vector<ResidentUnit> units = units_of(spec.model);
  for (const char* layout : {"dp=4", "dp=4,zero=1", "dp=4,zero=2", "dp=4,zero=3"}) {
    spec.layout = parse_layout(layout);
    const Plan plan = plan_run(spec);
    std::int64_t gathered = 0, summed = 0;
    for (const ResidencyMoment& m : residency(units, spec.layout, {})) {
      EXPECT_EQ(m.parameters, plan.peak_of(Tag::parameter)) << layout;
      EXPECT_EQ(m.gradient, plan.peak_of(Tag::gradient)) << layout;
      EXPECT_EQ(m.optimizer, plan.peak_of(Tag::optimizer)) << layout;
      gathered = std::max(gathered, m.gathered);
      summed = std::max(summed, m.summed);
    }
    EXPECT_EQ(gathered, plan.peak_of(Tag::gathered)) << layout;
    EXPECT_EQ(summed, plan.peak_of(Tag::communication)) << layout;
  }
}

TEST(MemoryPicture, BarsAreAsLongAsTheirBytes) {
  const MemoryBar bars[] = {{.label = "a", .parts = {{"parameter", 4096}, {"gradient", 0}, {"data", 1024}}},
                            {.label = "b", .parts = {{"parameter", 1024}, {"gradient", 512}, {"data", 0}}}};
  const std::string svg = memory_picture(bars, {.title = "t", .subtitle = "s"});
  const std::regex rect(
      "<rect class=\"step\" x=\"[^\"]*\" y=\"[^\"]*\" width=\"([^\"]*)\"[^>]*><title>\\w+: .* = (\\d+) bytes");
  std::vector<std::pair<double, double>> drawn;
  for (std::sregex_iterator at(svg.begin(), svg.end(), rect), none; at != none; ++at)
    drawn.emplace_back(std::stod((*at)[1]), std::stod((*at)[2]));
  ASSERT_EQ(drawn.size(), 4u);
  for (const auto& [width, bytes] : drawn) EXPECT_NEAR(width / bytes, drawn[0].first / 4096, 1e-3);
  EXPECT_EQ(short_bytes(0), "0 B");
  EXPECT_EQ(short_bytes(1023), "1.00 KiB");
  EXPECT_EQ(short_bytes(5120), "5.00 KiB");
  EXPECT_EQ(short_bytes(std::int64_t{169} << 30), "169 GiB");
}

}  // namespace
}  // namespace lockstep::tests
