// Layouts in a file: what is a line, and what is said of one that is none.
#include "spec/layout/layout_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep::tests {
namespace {

TEST(LayoutList, IsALayoutALine) {
  const auto list = parse_layout_list("# all\n\n dp=2,zero=3\t# cut\r\n#\ndp=2,zero=3\npp=2,schedule=zb-h1", "list");
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].text, "dp=2,zero=3");
  EXPECT_EQ(list[0].where, "list:3");
  EXPECT_EQ(list[0].layout, (LayoutSpec{.dp = 2, .zero = 3}));
  EXPECT_EQ(list[1].where, "list:5");
  EXPECT_EQ(list[2].where, "list:6");
  EXPECT_EQ(list[2].layout, (LayoutSpec{.pp = 2, .schedule = ScheduleKind::zb_h1}));
}

TEST(LayoutList, NamesFileAndLineOfAMistake) {
  const auto words = [](const std::string& text) -> std::string {
    try {
      parse_layout_list(text, "list");
      return "";
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      return error.what();
    }
  };
  using ::testing::StartsWith;
  EXPECT_EQ(words(""), "list: it names no layout; write one per line, as in dp=2,pp=2,zero=3");
  EXPECT_EQ(words("\n # dp=2\n"), words(""));
  EXPECT_THAT(words("dp=2\nzero=7"), StartsWith("list:2: zero=7: "));
  EXPECT_THAT(words("dp=2,,zero=1"), StartsWith("list:1: 'dp=2,,zero=1': '' names no key and value; "));
  std::string many;
  for (std::size_t i = 0; i < kMostListed; ++i) many += "dp=2\n";
  EXPECT_EQ(words(many), "");
  EXPECT_EQ(words(many + "dp=2"), "list:1001: more than 1000 layouts; split the file into several");
}

}  // namespace
}  // namespace lockstep::tests
