// Patterns in Oniguruma's Ruby syntax mean in PCRE2 what they mean there.
#include "data/tokenizer/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "data/tokenizer/pattern_syntax.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> matches_of(const char* expression, const std::string& text) {
  const Pattern pattern(expression, "test");
  PatternScratch scratch;
  std::vector<std::string> found;
  pattern.each(text, scratch,
               [&](const PatternMatch& match) { found.push_back(text.substr(match.begin, match.end - match.begin)); });
  return found;
}

TEST(Patterns, ClassesAreUnicodes) {
  EXPECT_THAT(matches_of("\\s+", "a\u00A0\u0085\u3000b"), ElementsAre("\u00A0\u0085\u3000"));
  EXPECT_THAT(matches_of("\\s", "\u180E\u200B"), IsEmpty());  // no longer white space
  EXPECT_THAT(matches_of("[^\\s]+", "a\u180Eb c"), ElementsAre("a\u180Eb", "c"));
  EXPECT_THAT(matches_of("[\\S]+", "a\u180Eb\u2003c"), ElementsAre("a\u180Eb", "c"));
  EXPECT_THAT(matches_of("\\w+", "e\u0301_9\u203F-x"), ElementsAre("e\u0301_9\u203F", "x"));  // marks, connectors
  EXPECT_THAT(matches_of("\\d+", "1\u0663½"), ElementsAre("1\u0663"));
  EXPECT_THAT(matches_of("\\h+", "xBEef g"), ElementsAre("BEef"));
  EXPECT_THAT(matches_of("\\p{Han}+", "\u4E00\u3001\u30FC"), ElementsAre("\u4E00"));  // not the script's extensions
  EXPECT_THAT(matches_of("\\p{^L}+|\\P{^N}", "a-1"), ElementsAre("-1"));
  EXPECT_THAT(matches_of("[[:alpha:]\\u00e9]+", "zé1"), ElementsAre("zé"));
  EXPECT_THAT(matches_of("\\bhe\\b", "he the he's"), ElementsAre("he", "he"));
}

TEST(Patterns, RepetitionsAreRubys) {
  EXPECT_THAT(matches_of("a{1,2}+b", "aaab"), ElementsAre("aaab"));  // in Perl possessive: no match with three
  EXPECT_THAT(matches_of("(?:ab){2}+", "ababababab"), ElementsAre("abababab"));
  EXPECT_THAT(matches_of("xa{2}?", "xaa x"), ElementsAre("xaa", "x"));
  EXPECT_THAT(matches_of("xa{,2}", "xaaa"), ElementsAre("xaa"));
  EXPECT_THAT(matches_of("a++b|a?+c", "aab ac"), ElementsAre("aab", "ac"));
  EXPECT_THAT(matches_of("a{b}", "a{b}"), ElementsAre("a{b}"));
}

TEST(Patterns, LinesEndAtLineFeeds) {
  EXPECT_THAT(matches_of("^.+$", "a\rb\nc"), ElementsAre("a\rb", "c"));
  EXPECT_THAT(matches_of("\\Aa|b\\z", "ab\nab"), ElementsAre("a", "b"));
}

TEST(Patterns, IgnoreCaseWhereTheySay) {
  EXPECT_THAT(matches_of("(?i:'s)|'t", "'S'\u017F'T't"), ElementsAre("'S", "'\u017F", "'t"));  // long s folds to s
  EXPECT_THAT(matches_of("(?i)a(?-i:b)", "AB Ab"), ElementsAre("Ab"));
}

TEST(Patterns, LookAroundWithoutTaking) {
  EXPECT_THAT(matches_of("\\s+(?!\\S)|\\s+", "a   b"), ElementsAre("  ", " "));
  EXPECT_THAT(matches_of("(?<=a)b|(?<name>c)(?#why)", "ab bc"), ElementsAre("b", "c"));
}

TEST(Patterns, AVeryLongMatchNeedsNoDeepStack) {
  const std::string text(4 << 20, ' ');
  EXPECT_EQ(matches_of("\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", text).size(), 1u);
  EXPECT_EQ(matches_of("(?:a|b)+", std::string(1 << 16, 'a')).size(), 1u);
}

}  // namespace
}  // namespace lockstep
