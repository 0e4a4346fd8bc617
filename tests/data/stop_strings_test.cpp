// A text ends where the first stop string begins, however it comes in pieces.
#include <gtest/gtest.h>

#include "data/stop_strings.h"

namespace lockstep {
namespace {

// The text in pieces of `size` bytes.
std::string ended(const std::string& text, const std::vector<std::string>& stops, std::size_t size) {
  StopStrings stop(stops);
  std::string out;
  for (std::size_t at = 0; at < text.size() && !stop.found(); at += size) out += stop.push(text.substr(at, size));
  return out + stop.finish();
}

TEST(StopStrings, EndATextWhereTheFirstOfThemBeginsWhateverThePieces) {
  const std::string text = "abaab aab ###\nabc## end";
  for (const std::vector<std::string>& stops : std::vector<std::vector<std::string>>{
           {}, {"###"}, {"\nab"}, {"zzz"}, {"aab aab"}, {"aabb", "aab "}, {" end"}, {"endless"}, {"a"}, {"##", "\n"}}) {
    std::size_t first = text.size();
    for (const std::string& one : stops) first = std::min(first, text.find(one));
    for (std::size_t size = 1; size <= text.size(); ++size)
      EXPECT_EQ(ended(text, stops, size), text.substr(0, first)) << size;
  }
}

TEST(StopStrings, HoldBackNoMoreThanMayBecomeOne) {
  StopStrings stop({"###", "end"});
  EXPECT_EQ(stop.push("one "), "one ");
  EXPECT_EQ(stop.push("two #"), "two ");
  EXPECT_EQ(stop.push("#"), "");
  EXPECT_EQ(stop.push("x e"), "##x ");
  EXPECT_EQ(stop.push("d"), "ed");
  EXPECT_FALSE(stop.found());
}

}  // namespace
}  // namespace lockstep
