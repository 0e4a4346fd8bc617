// A unit's flat buffer: matrices, then vectors, then tied gradients, each at a multiple of 256.
#include "spec/parameters.h"

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

}  // namespace
}  // namespace lockstep
