// A unit's flat buffer: matrices, then vectors, then tied gradients, each at a multiple of 256.
#include "spec/model/parameters.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep {
namespace {

TEST(UnitLayout, PutsMatricesBeforeVectorsAndAlignsAll) {
  UnitLayout layout("block.0");
  const int norm = layout.add({.shape = {7}, .pieces = {{"norm", {7}}}});
  const int matrix = layout.add({.shape = {5, 7}, .pieces = {{"q", {2, 7}}, {"k", {3, 7}}}});
  const int tied = layout.add({.shape = {9, 7}, .tied = true});
  const int large = layout.add({.shape = {30, 10}, .pieces = {{"w", {30, 10}}}});
  EXPECT_EQ(layout.offset(matrix), 0);
  EXPECT_EQ(layout.offset(large), 256);
  EXPECT_EQ(layout.decayed(), 256 + 512);
  EXPECT_EQ(layout.offset(norm), 768);
  EXPECT_EQ(layout.owned(), 1024);
  EXPECT_EQ(layout.offset(tied), 1024);
  EXPECT_EQ(layout.elements(), 1280);
}

TEST(UnitLayout, RefusesPiecesThatDoNotFillTheirParameter) {
  UnitLayout layout("block.0");
  EXPECT_THROW(layout.add({.shape = {5, 7}, .pieces = {{"q", {2, 7}}}}), ProgramError);
  EXPECT_THROW(layout.add({.shape = {5, 7}, .pieces = {{"q", {5, 7}}}, .tied = true}), ProgramError);
}

// Every element of a run within a range, and no other, by counting them all.
TEST(Runs, ClippedAreTheirElementsWithinTheRange) {
  for (const lockstep::Run& run :
       {lockstep::Run{.here = {5, 3, 7, 4}, .there = {100, 3, 11, 4}},
        lockstep::Run{.here = {0, 2, 2, 5}, .there = {9, 2, 6, 5}}, lockstep::Run::flat(3, 0, 17)})
    for (std::int64_t begin = 0; begin < 40; ++begin)
      for (std::int64_t end = begin; end < 40; ++end) {
        std::vector<std::pair<std::int64_t, std::int64_t>> want, got;
        const auto each = [](const lockstep::Run& of, auto&& give) {
          for (std::int64_t i = 0; i < of.rows(); ++i)
            for (std::int64_t j = 0; j < of.row(); ++j)
              give(std::pair(of.here.begin + i * of.here.pitch + j, of.there.begin + i * of.there.pitch + j));
        };
        each(run, [&](const auto& one) {
          if (one.first >= begin && one.first < end) want.push_back(one);
        });
        const std::vector<lockstep::Run> parts = clipped(run, begin, end);
        EXPECT_LE(parts.size(), 3u);
        for (const lockstep::Run& part : parts) each(part, [&](const auto& one) { got.push_back(one); });
        ASSERT_EQ(got, want) << begin << " to " << end;
      }
}

}  // namespace
}  // namespace lockstep
