// Tokenizers that want to break `lockstep tokenize`: files that are not what they say, and files that are, but grow.
#include <gtest/gtest.h>

#include "data/tokenizer_documents.h"
#include "support/hostile_input.h"

namespace lockstep::tests {
namespace {

using Json = nlohmann::json;

// A good tokenizer.json with one change.
std::function<std::string()> with(const std::string& pointer, Json (*value)()) {
  return [=] {
    Json document = small_document();
    document[Json::json_pointer(pointer)] = value();
    return document.dump();
  };
}

// So many times the same thing in a list.
Json many(std::size_t count, const Json& one) { return Json(std::vector<Json>(count, one)); }

Json split_by(const std::string& expression) {
  return {{"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", "Isolated"}, {"invert", false}};
}
Json replace(const std::string& from, const std::string& to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}
Json in_sequence(const char* items, const Json& all) { return {{"type", "Sequence"}, {items, all}}; }
Json nested(const char* items, int depth) {
  Json node = {{"type", "NFC"}};
  for (int i = 0; i < depth; ++i) node = in_sequence(items, Json::array({node}));
  return node;
}
Json added(const std::string& content, Json id) {
  return {{"id", std::move(id)}, {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false},     {"normalized", false}, {"special", true}};
}
Json template_of(const Json& single, const Json& special) {
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", Json::array()}, {"special_tokens", special}};
}

std::string good() { return small_document().dump(); }
std::string cut_at(double share) {
  const std::string all = good();
  return all.substr(0, static_cast<std::size_t>(share * static_cast<double>(all.size())));
}

const HostileInput kTokenizerFiles[] = {
    {"Empty", "tokenizer.json", text(""), "not valid JSON"},
    {"Folder", "tokenizer.json", text(kAFolder), "is a folder"},
    {"Pipe", "tokenizer.json", text(kAPipe), "not a regular file"},
    {"Missing", "tokenizer.json", text(kNoFile), "there is no"},
    {"Hole", "tokenizer.json", text(kAHole), "is larger than"},
    {"Zeros", "tokenizer.json", text(std::string(1000, '\0')), "not valid JSON"},
    {"Utf16", "tokenizer.json", text(std::string("\xff\xfe{\0}\0", 6)), "not valid JSON"},
    {"CutEarly", "tokenizer.json", [] { return cut_at(0.01); }, "not valid JSON"},
    {"CutInTheVocabulary", "tokenizer.json", [] { return cut_at(0.6); }, "not valid JSON"},
    {"CutAtTheEnd", "tokenizer.json", [] { return cut_at(0.9999); }, "not valid JSON"},
    {"Twice", "tokenizer.json", [] { return good() + good(); }, "not valid JSON"},
    {"MoreAfterIt", "tokenizer.json", [] { return good() + std::string(1, '\0'); }, "not valid JSON"},
    {"MillionsOfBrackets", "tokenizer.json", [] { return std::string(20'000'000, '['); }, "nested deeper"},
    {"MoreThan128MiBOfBrackets", "tokenizer.json", [] { return std::string(140'000'000, '['); }, "is larger than"},
    {"DeepObjects", "tokenizer.json", [] { return times("{\"a\":", 1'000'000); }, "nested deeper"},
    {"MillionsOfNumbers", "tokenizer.json", [] { return "{\"model\":[" + times("0,", 9'000'000) + "0]}"; }, "values"},
    {"MillionsOfKeysTwice", "tokenizer.json", [] { return "{" + times("\"a\":0,", 3'000'000) + "\"b\":0}"; }, "twice"},
    {"HugeNumber", "tokenizer.json", [] { return "{\"version\":1" + std::string(1'000'000, '0') + "}"; }, "number"},
    {"HugeExponent", "tokenizer.json", text(R"({"version":1e999999999})"), "number"},
    {"HugeText", "tokenizer.json", [] { return "{\"version\":\"" + std::string(5'000'000, 'x') + "\"}"; }, "version"},
    {"HugeKey", "tokenizer.json", [] { return "{\"" + std::string(5'000'000, 'x') + "\":1}"; }, "field"},
    {"ControlCharactersInAKey", "tokenizer.json", text("{\"\\u001b[2Jx\\n\":1}"), "field"},
    {"HalfASurrogate", "tokenizer.json", text(R"({"\ud800":1})"), "not valid JSON"},
    {"InvalidUtf8", "tokenizer.json", text("{\"version\":\"\xc0\xaf\"}"), "not valid JSON"},
    {"AList", "tokenizer.json", text("[{}]"), "not an object"},
    {"NothingInside", "tokenizer.json", text("{}"), "no 'model'"},
    {"ModelOfNumbers", "tokenizer.json", with("/model", []() -> Json { return many(10, 1); }), "not an object"},
    {"ModelWithoutVocabulary", "tokenizer.json",
     with("/model",
          []() -> Json {
            return {{"type", "BPE"}, {"merges", Json::array()}};
          }),
     "vocab"},
    {"VocabularyOfLists", "tokenizer.json", with("/model/vocab/he", []() -> Json { return Json::array({7}); }),
     "id of 'he'"},
    {"NegativeId", "tokenizer.json", with("/model/vocab/he", []() -> Json { return -2147483648; }), "id of 'he'"},
    {"IdOf63Bits", "tokenizer.json", with("/model/vocab/he", []() -> Json { return 9223372036854775807; }),
     "id of 'he'"},
    {"IdOf64Bits", "tokenizer.json", with("/model/vocab/he", []() -> Json { return 18446744073709551615u; }),
     "id of 'he'"},
    {"IdWithAFraction", "tokenizer.json", with("/model/vocab/he", []() -> Json { return 256.5; }), "id of 'he'"},
    {"IdOfAnother", "tokenizer.json", with("/model/vocab/he", []() -> Json { return 5; }), "id 5 of another"},
    {"HugeTokenWithAWrongId", "tokenizer.json",
     with("/model/vocab/" + std::string(1'000'000, 'x'), []() -> Json { return -1; }), "id of"},
    {"MergesMissing", "tokenizer.json", with("/model/merges", []() -> Json { return nullptr; }), "merges"},
    {"MergesOfObjects", "tokenizer.json", with("/model/merges", []() -> Json { return many(1000, Json::object()); }),
     "merge 0"},
    {"MergeOfThree", "tokenizer.json",
     with("/model/merges/0",
          []() -> Json {
            return Json::array({"h", "e", "l"});
          }),
     "merge 0"},
    {"MergeOfWhatIsNotThere", "tokenizer.json",
     with("/model/merges/0",
          []() -> Json {
            return Json::array({"q", "q"});
          }),
     "merge 0"},
    {"MergeOfItself", "tokenizer.json", with("/model/merges/0", []() -> Json { return "hello hello"; }), "merge 0"},
    {"MergeOfNothing", "tokenizer.json", with("/model/merges/0", []() -> Json { return " "; }), "merge 0"},
    {"MergeWithManySpaces", "tokenizer.json",
     with("/model/merges/0", []() -> Json { return std::string(1'000'000, ' '); }), "merge 0"},
    {"LastOfManyMerges", "tokenizer.json",
     with("/model/merges",
          []() -> Json {
            Json merges = many(100'000, "h e");
            merges.push_back("h q");
            return merges;
          }),
     "merge 100000"},
    {"AddedTokensAsAnObject", "tokenizer.json",
     with("/added_tokens",
          []() -> Json {
            return {{"0", "<s>"}};
          }),
     "not a list"},
    {"AddedIdTooLarge", "tokenizer.json", with("/added_tokens/0/id", []() -> Json { return 1e18; }),
     "added_tokens[0].id"},
    {"AddedTokenTooLong", "tokenizer.json",
     with("/added_tokens/0/content", []() -> Json { return std::string(1'000'000, 'x'); }), "too long"},
    {"AddedTokensTooLarge", "tokenizer.json",
     with("/added_tokens",
          []() -> Json {
            Json all = Json::array();
            for (int i = 0; i < 9000; ++i) all.push_back(added(std::string(500, 'x') + std::to_string(i), 1000 + i));
            return all;
          }),
     "too long"},
    {"NormalizersNested", "tokenizer.json", with("/normalizer", []() -> Json { return nested("normalizers", 20); }),
     "nested deeper"},
    {"NormalizersInARow", "tokenizer.json",
     with("/normalizer",
          []() -> Json {
            return in_sequence("normalizers", many(30'000, {{"type", "NFC"}}));
          }),
     "steps"},
    {"NormalizersThatDouble", "tokenizer.json",
     with("/normalizer", []() -> Json { return in_sequence("normalizers", many(40, replace("a", "aa"))); }), "as long"},
    {"NormalizerThatFills", "tokenizer.json",
     with("/normalizer", []() -> Json { return replace("a", std::string(10'000'000, 'a')); }), "as long"},
    {"NormalizerThatPrepends", "tokenizer.json",
     with("/normalizer",
          []() -> Json {
            return {{"type", "Prepend"}, {"prepend", std::string(10'000'000, 'a')}};
          }),
     "as long"},
    {"NormalizerByEveryPlace", "tokenizer.json",
     with("/normalizer",
          []() -> Json {
            return {{"type", "Replace"}, {"pattern", {{"Regex", "x*"}}}, {"content", std::string(100'000, 'y')}};
          }),
     "as long"},
    {"PatternWithoutEnd", "tokenizer.json",
     with("/pre_tokenizer", []() -> Json { return split_by("(" + std::string(60'000, '(')); }), "pattern"},
    {"PatternTooLong", "tokenizer.json",
     with("/pre_tokenizer", []() -> Json { return split_by(std::string(1'000'000, 'a')); }), "longer than"},
    {"PatternThatCountsToABillion", "tokenizer.json",
     with("/pre_tokenizer", []() -> Json { return split_by("(?:(?:(?:a{999}){999}){999})"); }), "pattern"},
    {"PatternThatCountsBeyond", "tokenizer.json",
     with("/pre_tokenizer", []() -> Json { return split_by("a{99999999999}"); }), "pattern"},
    {"PatternThatBacktracks", "tokenizer.json",
     with("/pre_tokenizer", []() -> Json { return split_by("(?:(?:a|aa)+)+[bc]"); }), "gives up"},
    {"PatternThatBacktracksLonger", "tokenizer.json",
     with("/pre_tokenizer", []() -> Json { return split_by("(?:a?){40}a{40}(?:a+)+$[^a]"); }), "gives up"},
    {"PatternThatCallsItself", "tokenizer.json", with("/pre_tokenizer", []() -> Json { return split_by("(a(?R)?b)"); }),
     "pattern"},
    {"PatternWithCode", "tokenizer.json", with("/pre_tokenizer", []() -> Json { return split_by("a(?C1)b"); }),
     "pattern"},
    {"PatternWithVerbs", "tokenizer.json",
     with("/pre_tokenizer", []() -> Json { return split_by("(*NO_START_OPT)(*LIMIT_MATCH=9)a"); }), "pattern"},
    {"PatternOfAlternatives", "tokenizer.json",
     with("/pre_tokenizer", []() -> Json { return split_by("(" + times("a|", 30'000) + "["); }), "pattern"},
    {"PatternLooksBackFar", "tokenizer.json",
     with("/pre_tokenizer", []() -> Json { return split_by("(?<=a{70000})b"); }), "pattern"},
    {"PreTokenizersInARow", "tokenizer.json",
     with("/pre_tokenizer", []() -> Json { return in_sequence("pretokenizers", many(20'000, split_by("a"))); }),
     "steps"},
    {"PreTokenizersNested", "tokenizer.json",
     with("/pre_tokenizer", []() -> Json { return nested("pretokenizers", 20); }), "nested deeper"},
    {"TemplateThatFills", "tokenizer.json",
     with("/post_processor",
          []() -> Json {
            return template_of(many(2000, {{"SpecialToken", {{"id", "E"}, {"type_id", 0}}}}),
                               {{"E", {{"id", "E"}, {"ids", many(1000, 1)}, {"tokens", Json::array()}}}});
          }),
     "the template"},
    {"TemplateOfManyTexts", "tokenizer.json",
     with("/post_processor",
          []() -> Json {
            return template_of(many(20'000, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}), Json::object());
          }),
     "the template"},
    {"DecodersInARow", "tokenizer.json",
     with("/decoder",
          []() -> Json {
            return in_sequence("decoders", many(30'000, {{"type", "Fuse"}}));
          }),
     "steps"},
    {"UnknownEverything", "tokenizer.json",
     with("/decoder",
          []() -> Json {
            return {{"type", std::string(1'000'000, 'x')}};
          }),
     "decoder"},
    {"EndOfText", "tokenizer_config.json", text(R"({"eos_token": "<nowhere>"})"), "not in the vocabulary"},
    {"EndOfTextOfNothing", "tokenizer_config.json", text(R"({"eos_token": {"content": [1]}})"), "eos_token"},
    {"ConfigOfBrackets", "tokenizer_config.json", [] { return std::string(16 << 20, '['); }, "nested deeper"},
    {"ConfigTooLarge", "tokenizer_config.json", [] { return std::string(17 << 20, ' '); }, "is larger than"},
    {"ConfigIsAPipe", "tokenizer_config.json", text(kAPipe), "pipe"},
    {"ConfigIsAFolder", "tokenizer_config.json", text(kAFolder), "folder"},
    {"ConfigIsAHole", "tokenizer_config.json", text(kAHole), "is larger than"},
};
static_assert(std::size(kTokenizerFiles) >= 77);
class HostileTokenizers : public testing::TestWithParam<HostileInput> {};

TEST_P(HostileTokenizers, AreRefusedInOneLine) {
  const HostileFolder folder(GetParam());
  if (GetParam().file == "tokenizer.json")
    folder.write("tokenizer_config.json", R"({"eos_token": "<end>"})");
  else
    folder.write("tokenizer.json", good());
  folder.write("text.txt", std::string(300, 'a') + " hello" + std::string(300, 'b') + "\n");
  folder.expect_refused({"tokenize", "text.txt", "--tokenizer", ".", "--threads", "1", "--out", "out.tokens"});
}
INSTANTIATE_TEST_SUITE_P(Files, HostileTokenizers, testing::ValuesIn(kTokenizerFiles), kNameOfInput);

// What a tokenizer is to be learned from.
const HostileInput kTexts[] = {
    {"Missing", "x.txt", text(kNoFile), "there is no"}, {"Pipe", "x.txt", text(kAPipe), "not a regular file"},
    {"Hole", "x.txt", text(kAHole), "is binary"},       {"Empty", "x.txt", text(""), "is empty"},
    {"EmptyFolder", "x.txt", text(kAFolder), "x.txt"},  {"Zeros", "x.txt", text(std::string(1000, '\0')), "is binary"},
};
static_assert(std::size(kTexts) >= 6);

class HostileTexts : public testing::TestWithParam<HostileInput> {};

TEST_P(HostileTexts, TeachNoTokenizer) {
  const HostileFolder folder(GetParam());
  folder.expect_refused({"train-tokenizer", "x.txt", "--vocabulary", "300", "--out", "new/tokenizer"});
}
INSTANTIATE_TEST_SUITE_P(Files, HostileTexts, testing::ValuesIn(kTexts), kNameOfInput);

// A decoder is run when tokens become text.
TEST(HostileDecoders, DoNotGrowWithoutEnd) {
  for (const Json& decoder :
       {in_sequence("decoders", Json::array({in_sequence("decoders", many(40, replace("h", "hh")))})),
        replace("h", std::string(10'000'000, 'h'))}) {
    const HostileInput input{"Decoder", "tokenizer.json",
                             [&] {
                               Json document = small_document();
                               document["decoder"] = decoder;
                               return document.dump();
                             },
                             "as long"};
    const HostileFolder folder(input);
    folder.write("cases.json", R"([{"text":"hhh","ids":[104,104,104],"plain_ids":[104,104,104],"decoded":"hhh",)"
                               R"("decoded_without_special":"hhh"}])");
    folder.expect_refused({"verify", "--tokenizer", "."});
  }
}

}  // namespace
}  // namespace lockstep::tests
