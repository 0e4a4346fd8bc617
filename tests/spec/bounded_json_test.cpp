// JSON from outside is read whole, or refused where it goes beyond its bounds: what is wrong, and where.
#include "spec/text/bounded_json.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

std::string problem_of(const std::string& text, const JsonBounds& bounds = {}) {
  std::string problem;
  const std::optional<Json> json = parse_bounded_json<Json>(text, bounds, problem);
  EXPECT_EQ(json.has_value(), problem.empty()) << text.substr(0, 60);
  if (json) {
    EXPECT_EQ(*json, Json::parse(text));
  }
  return problem;
}

std::string times(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

TEST(BoundedJson, IsWhatTheLibraryReads) {
  for (const char* text :
       {"null", " [1, -2.5e3, \"\\u00e9\", {\"b\": true, \"a\": {\"b\": []}}] ", "{}", "\"x\"", "18446744073709551615"})
    EXPECT_EQ(problem_of(text), "") << text;
}

TEST(BoundedJson, HoldsExactlyWhatIsAllowed) {
  const JsonBounds bounds{.deepest = 3, .most_values = 6, .most_keys = 2};
  EXPECT_EQ(problem_of("[[[1]]]", bounds), "");
  EXPECT_EQ(problem_of("[[[[]]]]", bounds), "is nested deeper than 3");
  EXPECT_EQ(problem_of("[[{\"a\":[]}]]", bounds), "is nested deeper than 3");
  EXPECT_EQ(problem_of("[1,2,3,4,5]", bounds), "");
  EXPECT_EQ(problem_of("[1,2,3,4,5,6]", bounds), "holds more than 6 values");
  EXPECT_EQ(problem_of("{\"a\":1,\"b\":2}", bounds), "");
  EXPECT_EQ(problem_of("{\"a\":1,\"b\":2,\"c\":3}", bounds), "has an object of more than 2 keys");
  EXPECT_EQ(problem_of("[[[]],[[]]]", bounds), "") << "what was closed is not deep any more";
}

TEST(BoundedJson, KeysAreThereOnce) {
  EXPECT_EQ(problem_of("{\"a\":{\"a\":[{\"a\":1},{\"a\":2}]}}"), "");
  EXPECT_EQ(problem_of("{\"a\":1,\"\\u0061\":2}"), "has 'a' twice in one object");
  EXPECT_EQ(problem_of("{\"b\":{\"a\":1,\"c\":{},\"a\":2}}"), "has 'a' twice in one object");
}

TEST(BoundedJson, WhatIsNoneSaysWhere) {
  EXPECT_EQ(problem_of("[1,]"), "is not valid JSON at byte 4");
  EXPECT_EQ(problem_of("[1] x"), "is not valid JSON at byte 5");
  EXPECT_EQ(problem_of(std::string("[1]\0", 4)), "is not valid JSON at byte 4");
  EXPECT_EQ(problem_of(std::string("[1]\0]", 5)), "is not valid JSON at byte 4");
  EXPECT_EQ(problem_of("1e999"), "holds a number that no machine type can hold");
  for (const char* text : {"", "[", "{\"a\"", "\"\\ud800\"", "\"\xff\"", "[1", "{1:2}", "nul"})
    EXPECT_TRUE(problem_of(text).starts_with("is not valid JSON at byte ")) << text;
}

TEST(BoundedJson, LargeDocumentsTakeTimeInProportion) {
  // A list of objects and an object of many keys, each with what made the parser look back at all before it.
  EXPECT_EQ(problem_of("[" + times("{\"a\":{}},", 200'000) + "{}]"), "");
  EXPECT_EQ(problem_of("[" + times("[", 50) + times("]", 50) + times(",{\"role\":\"x\"}", 200'000) + "]"), "");
}

}  // namespace
}  // namespace lockstep
