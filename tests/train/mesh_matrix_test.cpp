// A sample of the matrix of layouts; `make test-slow` has all of it.
#include <gtest/gtest.h>

#include <set>

#include "support/mesh_matrix.h"

namespace lockstep::tests {
namespace {

constexpr unsigned kSampleSeed = 9;

TEST(MeshMatrix, HasEveryAxisWithEveryOther) {
  const std::vector<MeshCase> all = mesh_matrix();
  EXPECT_GE(all.size(), 200U);
  std::set<std::string> texts, axes, models, kinds;
  std::set<std::int64_t> sizes, zeros, chunks;
  std::set<ScheduleKind> schedules;
  bool one_micro = false, few_micro = false;
  int halves = 0;
  for (const MeshCase& one : all) {
    const LayoutSpec& l = one.layout;
    texts.insert(one.words());
    axes.insert(fmt::format("{}{}{}{}", l.dp > 1, l.pp > 1, l.cp > 1, l.tp > 1));
    models.insert(one.model.name);
    if (l.cp > 1) kinds.insert(l.cp_kind.text() + std::string(name_of(l.cp_order)));
    for (const std::int64_t size : {l.dp, l.pp, l.cp, l.tp}) sizes.insert(size);
    zeros.insert(l.zero);
    chunks.insert(l.chunks);
    if (l.pp > 1) schedules.insert(l.schedule);
    halves += l.wrap.is_of_halves();
    one_micro |= l.pp > 1 && l.micro == 1;
    few_micro |= l.micro > 1 && l.micro < l.pp;
    EXPECT_LE(l.ranks(), 16);
  }
  EXPECT_EQ(texts.size(), all.size()) << "some are there twice";
  EXPECT_EQ(axes.size(), 11U) << "six pairs, four of three, all four";
  EXPECT_EQ(models.size(), cut_specs().size());
  for (const char* kind :
       {"ringzigzag", "ringplain", "ulysseszigzag", "2x2zigzag", "2x2plain", "2x3zigzag", "3x2zigzag"})
    EXPECT_TRUE(kinds.contains(kind)) << kind;
  for (const std::int64_t size : {2, 3, 4, 5, 6}) EXPECT_TRUE(sizes.contains(size)) << size;
  EXPECT_EQ(zeros, (std::set<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(chunks, (std::set<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(schedules.size(), kScheduleKinds.size());
  EXPECT_TRUE(one_micro && few_micro);
  EXPECT_GE(halves, 10);
}

TEST(MeshMatrix, LearnsWhatOneRankLearns) {
  for (const MeshCase& one : mesh_sample(30, kSampleSeed)) expect_learns_as_one_rank(one);
}

TEST(MeshMatrix, CostsWhatMetaSays) {
  for (const MeshCase& one : mesh_sample(30, kSampleSeed)) expect_costs_as_on_meta(one);
}

TEST(MeshMatrix, CostsWhatMetaSaysWhereBlocksKeepTheirInputAlone) {
  for (const MeshCase& one : mesh_sample(15, kSampleSeed + 1)) {
    expect_costs_as_on_meta(one, {.recompute = Recompute::full});
    MemorySpec some{.recompute = Recompute::full, .recompute_every = 2};
    for (std::int64_t stage = 0; stage < one.layout.pp; ++stage)
      some.recompute_stages.counts.push_back(one.layout.pp - stage);
    expect_costs_as_on_meta(one, some);
  }
}

}  // namespace
}  // namespace lockstep::tests
