#include "pictures/measured_step_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

MeasuredStepPicture small() {
  return {.title = "a <step>",
          .subtitle = "two ranks",
          .ranks = {{{.kind = MeasuredKind::forward, .begin = 0, .end = 1e-3, .what = "block.0 forward"},
                     {.kind = MeasuredKind::wait, .begin = 1e-3, .end = 2e-3, .what = "wait for block.0 reduce"}},
                    {{.kind = MeasuredKind::update, .begin = 1e-3, .end = 4e-3, .what = "block.0 update"}}},
          .times = {0, 1e-3, 4e-3},
          .bands = {{"parameter", {1 << 20, 1 << 20}}, {"gathered", {0, 0}}, {"activation", {1 << 20, 0}}},
          .held = 4 << 20};
}

TEST(MeasuredStepPicture, DrawsEverySpanOnOneAxis) {
  const std::string svg = svg_picture(small());
  EXPECT_THAT(svg, HasSubstr("a &lt;step&gt;"));
  // 4 ms are 1000 pixels from 84 on.
  EXPECT_THAT(svg, HasSubstr("<rect class=\"span\" x=\"84\" y=\"62\" width=\"250\" height=\"20\" fill=\"#6ea8fe\">"
                             "<title>block.0 forward: 0.000 to 1.000 ms</title>"));
  EXPECT_THAT(svg, HasSubstr("<rect class=\"span\" x=\"334\" y=\"86\" width=\"750\" height=\"20\" fill=\"#f2b35e\">"
                             "<title>block.0 update: 1.000 to 4.000 ms</title>"));
  EXPECT_THAT(svg, HasSubstr("<title>wait for block.0 reduce: 1.000 to 2.000 ms</title>"));
}

TEST(MeasuredStepPicture, StacksTheBandsBelowWhatIsHeld) {
  const std::string svg = svg_picture(small());
  // 4 MiB are 220 pixels: a band of 1 MiB is 55 high, and the second stands on the first.
  EXPECT_THAT(svg, HasSubstr("width=\"250\" height=\"55\" fill=\"#6ea8fe\"><title>parameter: 1.00 MiB</title>"));
  EXPECT_THAT(svg, HasSubstr("width=\"750\" height=\"55\" fill=\"#6ea8fe\"><title>parameter: 1.00 MiB</title>"));
  EXPECT_THAT(svg, HasSubstr("width=\"250\" height=\"55\" fill=\"#5fc982\"><title>activation: 1.00 MiB</title>"));
  EXPECT_THAT(svg, HasSubstr(">4.00 MiB</text>"));
  EXPECT_THAT(svg, Not(HasSubstr("gathered")));  // nothing of it
}

}  // namespace
}  // namespace lockstep
