// Pipelines are drawn as they are: exactly where that is possible, and never wider than there is room.
#include "pictures/pipeline_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <regex>
#include <sstream>

#include "svg_checks.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

PipelineTimeline equal(ScheduleKind kind, const PipelineShape& shape, double time = 1) {
  return timed(make_schedule(kind, shape), [&](int) { return ChunkTimes{time, time, time, 0}; });
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) all.push_back(line);
  return all;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// The shape of a picture without colours: its colours taken off.
std::string without_colours(const std::string& text) {
  return std::regex_replace(text, std::regex("\033\\[[0-9;]*m"), "");
}

TEST(PipelinePicture, OfEqualTimesIsExact) {
  EXPECT_EQ(text_picture(equal(ScheduleKind::one_f_one_b, {4, 8, 1}), {.width = 80}),
            "stage 0 F0F1F2F3............B0--F4B1--F5B2--F6B3--F7B4--..B5--..B6--..B7--\n"
            "stage 1 ..F0F1F2........B0--F3B1--F4B2--F5B3--F6B4--F7B5--..B6--..B7--....\n"
            "stage 2 ....F0F1....B0--F2B1--F3B2--F4B3--F5B4--F6B5--F7B6--..B7--........\n"
            "stage 3 ......F0B0--F1B1--F2B2--F3B3--F4B4--F5B5--F6B6--F7B7--............\n"
            "time    |0        |5        |10       |15       |20       |25       |30\n"
            "        F forward  B backward  . idle\n");
  EXPECT_EQ(text_picture(equal(ScheduleKind::zb_h1, {3, 3, 1}), {.width = 80}),
            "stage 0 F0F1F2....I0W0I1W1I2W2\n"
            "stage 1 ..F0F1..I0F2I1W0I2W1W2\n"
            "stage 2 ....F0I0F1I1F2I2W0W1W2\n"
            "time    |0        |5\n"
            "        F forward  I backward, inputs  W backward, weights  . idle\n");
}

TEST(PipelinePicture, IsAColumnAUnitWhereLabelsDoNotFit) {
  EXPECT_EQ(text_picture(equal(ScheduleKind::one_f_one_b, {4, 8, 1}), {.width = 41}),
            "stage 0 FFFF......B0FB1FB2FB3FB4.B5.B6.B7\n"
            "stage 1 .FFF....B0FB1FB2FB3FB4FB5.B6.B7..\n"
            "stage 2 ..FF..B0FB1FB2FB3FB4FB5FB6.B7....\n"
            "stage 3 ...FB0FB1FB2FB3FB4FB5FB6FB7......\n"
            "time    |0        |10       |20       |30\n"
            "        F forward  B backward  . idle\n");
}

TEST(PipelinePicture, DoesNotDependOnTheUnitOfTime) {
  const auto rows = [](double time) {
    std::vector<std::string> all = lines(text_picture(equal(ScheduleKind::zb_h1, {4, 8, 1}, time), {.width = 100}));
    all.resize(4);
    return all;
  };
  for (const double time : {3., 0.1, 1e-6, 1.0 / 3}) EXPECT_EQ(rows(time), rows(1)) << time;
}

TEST(PipelinePicture, TellsChunksApart) {
  EXPECT_EQ(text_picture(equal(ScheduleKind::zb_v, {2, 2, 2}), {.width = 30}),
            "stage 0 FF.fiwfiwIW.IW\n"
            "stage 1 .FfFfiwIWiwIW.\n"
            "time    |0        |10\n"
            "        F forward  I backward, inputs  W backward, weights  . idle  (lower case: every second chunk of a "
            "stage)\n");
  const std::string colours = text_picture(equal(ScheduleKind::zb_v, {2, 2, 2}), {.width = 60, .colour = true});
  for (const char* shade : {"48;5;75m", "48;5;189m", "48;5;80m", "48;5;159m", "48;5;215m", "48;5;230m"})
    EXPECT_THAT(colours, HasSubstr(shade));
  EXPECT_THAT(colours, Not(HasSubstr("48;5;114m")));  // there is no whole backward
}

TEST(PipelinePicture, InColoursHasTheNumbersAndTheSameShape) {
  const std::vector<std::string> rows =
      lines(without_colours(text_picture(equal(ScheduleKind::one_f_one_b, {2, 3, 1}), {.width = 60, .colour = true})));
  EXPECT_EQ(rows[0], "stage 0 0 1 ....0   2 1   ..2   ");
  EXPECT_EQ(rows[1], "stage 1 ..0 0   1 1   2 2   ....");
  EXPECT_EQ(text_picture(equal(ScheduleKind::one_f_one_b, {2, 3, 1}), {.width = 60}).find('\033'), std::string::npos);
}

TEST(PipelinePicture, FillsItsWidthAndNeverExceedsIt) {
  for (const ScheduleKind kind : kScheduleKinds)
    for (const int micro : {1, 7, 40, 300})
      for (const int width : {30, 64, 120})
        for (const double horizon : {0., 5000.}) {
          const PipelineTimeline line = equal(kind, {5, micro, usual_chunks(kind)});
          std::vector<std::string> rows = lines(text_picture(line, {.width = width, .horizon = horizon}));
          rows.resize(6);  // the legend may be longer
          for (const std::string& row : rows) EXPECT_LE(row.size(), static_cast<std::size_t>(width)) << row;
          if (micro == 300 && horizon == 0) {
            EXPECT_EQ(rows[0].size(), static_cast<std::size_t>(width)) << rows[0];
          }
        }
}

TEST(PipelinePicture, OfUnevenTimesIsScaled) {
  PipelineTimeline line;
  line.stages = {{{{ChunkStep::forward, 0, 0}, 0, 0.1234567}, {{ChunkStep::backward, 0, 0}, 0.5001, 1}}};
  const std::vector<std::string> rows = lines(text_picture(line, {.width = 48, .unit = "ms", .scale = 1e3}));
  EXPECT_EQ(rows[0], "stage 0 F0---...............B0------------------");
  EXPECT_EQ(rows[1], "ms      |0                  |500");
}

TEST(PipelinePicture, OfNothingIsNothing) {
  EXPECT_THAT(text_picture({.stages = {{}}}, {}), HasSubstr("stage 0"));
  const PicturePanel none[] = {{.line = {.stages = {{}}}, .caption = ""}};
  EXPECT_THAT(svg_picture(none, {}), HasSubstr("</svg>"));
}

TEST(PipelineSvg, HasARectangleAStepAndIsWellFormed) {
  for (const ScheduleKind kind : kScheduleKinds) {
    const PicturePanel panels[] = {{.line = equal(kind, {4, 8, usual_chunks(kind)}), .caption = "one"},
                                   {.line = equal(kind, {3, 5, usual_chunks(kind)}), .caption = "two"}};
    std::size_t steps = 0;
    for (const PicturePanel& panel : panels)
      for (const auto& stage : panel.line.stages) steps += stage.size();
    const std::string svg = svg_picture(panels, {.title = "a", .subtitle = "b", .unit = "ms"});
    EXPECT_EQ(count(svg, "<rect class=\"step\""), steps) << name_of(kind);
    EXPECT_EQ(count(svg, ">stage "), 7u);
    EXPECT_EQ(count(svg, ">forward</text>"), 1u);
    EXPECT_THAT(svg, HasSubstr("prefers-color-scheme:dark"));
    expect_well_formed(svg);
  }
}

TEST(PipelineSvg, EscapesWhatItIsGiven) {
  const PicturePanel panel{.line = equal(ScheduleKind::afab, {2, 2, 1}), .caption = "<&>"};
  const std::string svg =
      svg_picture({&panel, 1}, {.title = "<script>\"a\" & b</script>", .subtitle = "\x01&lt;", .unit = "<ms>"});
  EXPECT_THAT(svg, HasSubstr("&lt;script&gt;&quot;a&quot; &amp; b&lt;/script&gt;"));
  EXPECT_THAT(svg, HasSubstr(">&amp;lt;<"));
  expect_well_formed(svg);
}

TEST(PipelineSvg, LabelsStepsThatAreWideEnough) {
  const auto labels = [](int micro) {
    const PicturePanel panel{.line = equal(ScheduleKind::one_f_one_b, {2, micro, 1}), .caption = ""};
    return count(svg_picture({&panel, 1}, {}), "class=\"in\"");
  };
  EXPECT_EQ(labels(8), 2u * 2 * 8);
  EXPECT_EQ(labels(800), 0u);
}

// The picture is as wide as its words, or they go on several lines: whatever is written is within it.
TEST(SvgPicture, CutsNoTitle) {
  const PipelineTimeline line = timed(make_schedule(ScheduleKind::one_f_one_b, {2, 3, 1}), [](int) {
    return ChunkTimes{1, 1, 1, 0};
  });
  const PicturePanel panel{.line = line, .caption = ""};
  std::string layout =
      "step 3 of dp=2,pp=4,cp=2,cp_kind=2x1,cp_order=plain,tp=2,sp=off,tp_chunks=8,micro=16,"
      "schedule=interleaved,chunks=4,stages=2+2+2+2+2+2+2+2+2+2+2+2+2+2+2+2,zero=3,reshard=never";
  const std::string wide(300, 'W');
  std::string foreign;
  for (int i = 0; i < 200; ++i) foreign += "漢";
  for (const std::string& title : {std::string("short"), layout, layout + ": " + layout, wide, foreign}) {
    const std::string svg = svg_picture({&panel, 1}, {.title = title, .subtitle = title});
    expect_well_formed(svg);
    std::smatch size;
    ASSERT_TRUE(std::regex_search(svg, size, std::regex("<svg[^>]* width=\"(\\d+)\"")));
    const double width = std::stod(size[1]);
    EXPECT_LT(width, 1600);
    const std::regex text("<text class=\"(ink title|soft)\" x=\"16\" y=\"[0-9.]+\">([^<]*)</text>");
    std::map<std::string, std::string> seen;
    for (std::sregex_iterator at(svg.begin(), svg.end(), text), none; at != none; ++at) {
      const std::string part = (*at)[2];
      const bool is_foreign = static_cast<unsigned char>(part[0]) >= 0x80;
      // As wide as 16 pixels make it, or 12: digits and small letters by 8.5, W and ideographs by 15.
      const double each = (is_foreign || part[0] == 'W' ? 15 : 8.5) * ((*at)[1] == "soft" ? 0.75 : 1);
      EXPECT_LE(16 + each * static_cast<double>(part.size()) / (is_foreign ? 3 : 1), width) << part;
      seen[(*at)[1]] += part;
    }
    std::string expected;
    std::ranges::copy_if(title, std::back_inserter(expected), [](char c) { return c != ' '; });
    for (const char* style : {"ink title", "soft"}) {
      std::string words = seen[style];
      std::erase(words, ' ');
      EXPECT_EQ(words.substr(0, expected.size()), expected) << style;
    }
  }
}

}  // namespace
}  // namespace lockstep::tests
