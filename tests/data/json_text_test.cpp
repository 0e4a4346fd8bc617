// The text of a key of a line of JSON: what a JSON library reads is read, and nothing else.
#include "data/corpus/json_text.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <random>

#include "data/tokenizer/utf8.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

std::string problem_of(std::string_view line) {
  std::string text, problem;
  return json_text(line, "text", text, problem) ? "" : problem;
}

std::string text_of_line(std::string_view line) {
  std::string text, problem;
  EXPECT_TRUE(json_text(line, "text", text, problem)) << line << ": " << problem;
  return text;
}

TEST(JsonText, GivesTheKeysText) {
  EXPECT_EQ(text_of_line(R"({"text": "a"})"), "a");
  EXPECT_EQ(text_of_line(R"( {"id":1,"text":"a\"b\\\/\b\f\n\r\t","x":[{"text":"no"},-1.5e+3,null,true,[]]} )"),
            "a\"b\\/\b\f\n\r\t");
  EXPECT_EQ(text_of_line(R"({"text":"\u00e9\u20AC\ud83d\ude00é€😀\u0000"})"), std::string("é€😀é€😀\0", 19));
  EXPECT_EQ(text_of_line(R"({"\u0074ext":"escaped"})"), "escaped");
  EXPECT_EQ(text_of_line(R"({"text":""})"), "");
}

TEST(JsonText, SaysWhatIsWrongAndWhere) {
  EXPECT_EQ(problem_of(R"({"id": 1})"), "has no key 'text'");
  EXPECT_EQ(problem_of(R"({"text": 1})"), "has a key 'text' that is no text");
  EXPECT_EQ(problem_of(R"({"text": null})"), "has a key 'text' that is no text");
  EXPECT_EQ(problem_of(R"({"text":"a","text":"b"})"), "has the key 'text' twice");
  EXPECT_EQ(problem_of(R"({"a": {"text": "inner"}})"), "has no key 'text'");
  EXPECT_EQ(problem_of(R"({"text": nope})"), "is not JSON at byte 10: a value is expected");
  EXPECT_EQ(problem_of("[1]"), "is not JSON at byte 1: an object is expected");
  EXPECT_EQ(problem_of(R"({"text":"a"} x)"), "is not JSON at byte 14: there is more after the object");
  EXPECT_EQ(problem_of(R"({"text":"a)"), "is not JSON at byte 11: the line ends inside a string");
  EXPECT_EQ(problem_of("{\"text\":\"a\xff\"}"), "is not JSON at byte 11: what is there is not UTF-8");
  EXPECT_THAT(problem_of(R"({"text":"\ud800"})"), HasSubstr("half of a surrogate pair"));
  EXPECT_THAT(problem_of("{\"a\":" + std::string(600, '[') + std::string(600, ']') + "}"), HasSubstr("nest too deep"));
}

// Of lines that are nearly JSON, as many are taken as the library takes, with the same text.
TEST(JsonText, AgreesWithALibraryOnTwentyThousandLines) {
  const std::vector<std::string> seeds = {R"({"text":"a\u00e9\n\"b","n":[1,-0.5e3,{"k":null}],"t":true})",
                                          R"({"id":12,"text":"\ud83d\ude00 é","meta":{"text":"x","l":[[],{}]}})",
                                          R"({"text" : "","e":0,"f":false , "g":"\\u"})"};
  const std::string letters = "{}[]\",:\\u0019deE+-.tfnalsr \t\x01\xff\xc3\xa9";
  std::mt19937 random(5);
  int taken = 0, refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string line = seeds[random() % seeds.size()];
    for (std::size_t k = random() % 3; k > 0; --k) {
      const std::size_t at = random() % line.size();
      const char letter = letters[random() % letters.size()];
      if (random() % 3 == 0)
        line.erase(at, 1 + random() % 3);
      else if (random() % 2 == 0)
        line.insert(at, 1, letter);
      else
        line[at] = letter;
      if (line.empty()) line = "{";
    }
    const auto json = nlohmann::json::parse(line, nullptr, false);
    const bool whole = json.is_object();
    const std::string problem = problem_of(line);
    if (!whole) {
      EXPECT_THAT(problem, HasSubstr("is not JSON")) << line;
      ++refused;
    } else if (problem.find("twice") != problem.npos) {
      continue;  // the library takes the last
    } else if (json.contains("text") && json["text"].is_string()) {
      EXPECT_EQ(text_of_line(line), json["text"].get<std::string>()) << line;
      ++taken;
    } else {
      EXPECT_NE(problem, "") << line;
      EXPECT_EQ(problem.find("is not JSON"), problem.npos) << line << ": " << problem;
    }
  }
  EXPECT_GT(taken, 3000);
  EXPECT_GT(refused, 3000);
}

}  // namespace
}  // namespace lockstep
