// Memory over a step, drawn: every band is as high as its bytes, all fit below what is held, and the peak is marked.
#include "pictures/memory_timeline_picture.h"

#include <gtest/gtest.h>

#include <map>
#include <regex>

#include "svg_checks.h"

namespace lockstep::tests {
namespace {

MemoryTimelinePicture small_timeline() {
  using Kind = MemoryPhase::Kind;
  return {.title = "t",
          .subtitle = "s",
          .bands = {{"parameter", {1024, 1024, 1024, 1024}}, {"activation", {512, 2048, 1024, 0}}},
          .held = {4096, 4096, 4096, 4096},
          .actions = {"forward of a", "forward of b", "backward_input of b", "norm"},
          .phases = {{Kind::forward, "F0", 0, 1}, {Kind::backward, "B0", 2, 2}, {Kind::update, "update", 3, 3}},
          .peak = 1,
          .tensors = {{"b logits", 1, 2048}, {"a", 0, 1024}}};
}

struct DrawnBytes {
  double left, top, width, height, bytes;
};

std::map<std::string, std::vector<DrawnBytes>> drawn_bands(const std::string& svg) {
  std::map<std::string, std::vector<DrawnBytes>> all;
  const std::regex rect(
      "<rect class=\"bytes\" x=\"([^\"]*)\" y=\"([^\"]*)\" width=\"([^\"]*)\" "
      "height=\"([^\"]*)\"[^>]*><title>(\\w+): .* = (\\d+) bytes");
  for (std::sregex_iterator at(svg.begin(), svg.end(), rect), none; at != none; ++at)
    all[(*at)[5]].push_back(
        {std::stod((*at)[1]), std::stod((*at)[2]), std::stod((*at)[3]), std::stod((*at)[4]), std::stod((*at)[6])});
  return all;
}

TEST(MemoryTimelinePicture, BandsAreAsHighAsTheirBytesAndStandOnEachOther) {
  const std::string svg = memory_timeline_picture(small_timeline());
  expect_well_formed(svg);
  expect_texts_within_page(svg);
  const auto bands = drawn_bands(svg);
  ASSERT_EQ(bands.at("parameter").size(), 1u);   // it does not change
  ASSERT_EQ(bands.at("activation").size(), 3u);  // at the last action there is none
  const DrawnBytes& base = bands.at("parameter")[0];
  for (const DrawnBytes& one : bands.at("activation")) {
    EXPECT_NEAR(one.height / one.bytes, base.height / base.bytes, 1e-3);
    EXPECT_NEAR(one.top + one.height, base.top, 0.02);
    EXPECT_NEAR(one.width, base.width / 4, 0.02);
  }
  EXPECT_NE(svg.find("in use at forward of b"), std::string::npos);
  EXPECT_NE(svg.find("parameter, a: 1024 bytes"), std::string::npos);
}

// Of more actions than there are pixels each column shows its fullest: no peak is lost.
TEST(MemoryTimelinePicture, OfManyActionsThePeakIsDrawn) {
  MemoryTimelinePicture many{.title = "t",
                             .subtitle = "s",
                             .bands = {{"activation", std::vector<std::int64_t>(5001, 256)}},
                             .held = std::vector<std::int64_t>(5001, 8192),
                             .actions = std::vector<std::string>(5001, "norm"),
                             .phases = {{MemoryPhase::Kind::update, "update", 0, 5000}},
                             .peak = 3333,
                             .tensors = {}};
  many.bands[0].bytes[3333] = 8192;
  const auto bands = drawn_bands(memory_timeline_picture(many));
  double highest = 0;
  for (const DrawnBytes& one : bands.at("activation")) highest = std::max(highest, one.bytes);
  EXPECT_EQ(highest, 8192);
  EXPECT_LE(bands.at("activation").size(), 3u);
}

}  // namespace
}  // namespace lockstep::tests
