// What every lever leaves on the device, the host and the disk is known before, to the byte: each alone in every layout
// that takes it, and many together.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <map>

#include "plan/plan.h"
#include "support/levers.h"

namespace lockstep::tests {
namespace {

TEST(LeverCosts, OfEachAloneAreWhatMetaSays) {
  int alone = 0;
  for (const LeverKind& kind : kinds_of_levers())
    for (const NamedLever& lever : kind) {
      int layouts = 0;
      for (const char* layout : {"micro=2", "dp=3", "dp=2,pp=2,micro=4", "dp=2,cp=2,tp=2,micro=2"}) {
        RunSpec run = run_without_levers(layout);
        lever.use(run);
        if (!could_be_run(run)) continue;
        expect_costs_as_planned(run, std::string(layout) + ": " + lever.name);
        ++layouts;
      }
      EXPECT_GE(layouts, 2) << lever.name;
      ++alone;
    }
  EXPECT_GE(alone, 20);
}

TEST(LeverCosts, OfCombinationsAreWhatMetaSays) {
  constexpr std::size_t kCombinations = 72;
  const std::vector<LeverCombination> all = lever_combinations(kCombinations, 3);
  ASSERT_EQ(all.size(), kCombinations);
  std::map<std::string, int> uses;
  std::map<std::string, int> layouts;
  for (const LeverCombination& one : all) {
    expect_costs_as_planned(one.run, one.words);
    for (const std::string& lever : one.levers) ++uses[lever];
    ++layouts[one.words.substr(0, one.words.find(':'))];
  }
  for (const LeverKind& kind : kinds_of_levers())
    for (const NamedLever& lever : kind) EXPECT_GE(uses[lever.name], 2) << lever.name;
  for (const std::string& layout : layouts_for_levers()) EXPECT_GE(layouts[layout], 2) << layout;
}

// A lever lowers what it is there for, and the rows of the ledgers say so: or equal numbers would prove nothing.
TEST(LeverCosts, AreLowerWhereTheLeverActs) {
  RunSpec none = run_without_levers("dp=2,micro=2");
  none.precision.compute = Precision::bf16;
  const Plan before = plan_run(none);
  const auto with = [&](const std::string& name) {
    for (const LeverKind& kind : kinds_of_levers())
      for (const NamedLever& lever : kind)
        if (lever.name == name) {
          RunSpec run = none;
          lever.use(run);
          return plan_run(run);
        }
    ADD_FAILURE() << name;
    return before;
  };
  EXPECT_LT(with("recompute full").peak_of(Tag::activation), before.peak_of(Tag::activation));
  EXPECT_LT(with("twice the micro-batches").peak_of(Tag::activation), before.peak_of(Tag::activation));
  EXPECT_LT(with("zero 1").peak_of(Tag::optimizer), before.peak_of(Tag::optimizer));
  EXPECT_LT(with("zero 2").peak_of(Tag::gradient), before.peak_of(Tag::gradient));
  EXPECT_LT(with("zero 3").peak_of(Tag::parameter), before.peak_of(Tag::parameter));
  EXPECT_GT(with("zero 3 gathered").peak_of(Tag::gathered), with("zero 3").peak_of(Tag::gathered));
  EXPECT_EQ(with("bf16 gradients").peak_of(Tag::gradient), before.peak_of(Tag::gradient) / 2);
  EXPECT_EQ(with("bf16 moments").peak_of(Tag::optimizer), before.peak_of(Tag::optimizer) * 2 / 3);
  EXPECT_EQ(with("bf16 masters").peak_of(Tag::optimizer), before.peak_of(Tag::optimizer) * 2 / 3);
  EXPECT_LT(with("saves that are waited for").peak, before.peak);
  const Plan disk = with("offload to disk, share 1, window 64"), host = with("offload to host, share 1, window 64");
  EXPECT_EQ(disk.peak_of(Tag::optimizer), 0);
  EXPECT_EQ(host.peak_of(Tag::optimizer), 0);
  EXPECT_EQ(disk.disk, before.peak_of(Tag::optimizer));
  EXPECT_EQ(host.host, before.peak_of(Tag::optimizer));
  EXPECT_EQ(disk.host + host.disk, 0);
}

}  // namespace
}  // namespace lockstep::tests
