// Tables for a terminal and for a page.
#include "cli/text_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/plan_view.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

TEST(TextTable, ColumnsAreAsWideAsTheirCharacters) {
  const TextTable table{.title = "t", .heads = {"name", "size"}, .rows = {{"Ψ", "2 Ψ"}, {"long name", "10"}}};
  EXPECT_EQ(table.plain(),
            "t\n"
            "  name       size\n"
            "  Ψ           2 Ψ\n"
            "  long name    10\n");
}

TEST(TextTable, ColumnsWithoutAnythingAreDropped) {
  TextTable table{.title = "t", .heads = {"name", "a", "b"}, .rows = {{"x", "", "1"}, {"y", "", ""}}};
  table.drop_empty_columns();
  EXPECT_EQ(table.markdown(), "t\n\n| name | b |\n| --- | ---: |\n| x | 1 |\n| y |  |\n");
}

// What a unit holds at most, though it has given it back when the step is over.
TEST(UnitTable, ShowsThePeakOfEveryUnit) {
  Plan plan;
  plan.peaks[static_cast<int>(Tag::workspace)] = 2048;
  plan.rows[{Tag::workspace, "block.3"}] = {.current = 0, .peak = 2048};
  EXPECT_THAT(unit_table(plan), HasSubstr("2.00 KiB"));
}

}  // namespace
}  // namespace lockstep::tests
