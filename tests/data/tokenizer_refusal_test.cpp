// Every tokenizer.json that is malformed or asks for what there is not: one line with the place and a remedy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "data/temp_folder.h"
#include "data/tokenizer/tokenizer_cases.h"
#include "data/tokenizer_documents.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

std::string refusal(const std::string& text) {
  return user_error([&] { (void)Tokenizer(text, "tokenizer.json"); });
}

void expect_refused(const std::string& text, const std::vector<std::string>& says, const std::string& what) {
  const std::string message = refusal(text);
  EXPECT_THAT(message, HasSubstr("tokenizer.json: ")) << what;
  EXPECT_THAT(message, HasSubstr("; ")) << what << " has no remedy: " << message;
  EXPECT_LT(message.size(), 600u) << what;
  for (const std::string& part : says) EXPECT_THAT(message, HasSubstr(part)) << what;
}

// A change of the small document, which is good without it.
struct WrongField {
  const char* pointer;
  Json value;
  std::vector<std::string> says;
};

Json split_with(Json pattern, const char* behaviour = "Isolated") {
  return {{"type", "Split"}, {"pattern", std::move(pattern)}, {"behavior", behaviour}, {"invert", false}};
}

Json split_by(const char* expression) { return split_with({{"Regex", expression}}); }

Json metaspace_with(const char* key, Json value) {
  Json piece = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}};
  piece[key] = std::move(value);
  return piece;
}

Json template_with(Json single, Json special_tokens) {
  return {
      {"type", "TemplateProcessing"}, {"single", single}, {"pair", Json::array()}, {"special_tokens", special_tokens}};
}

TEST(TokenizerRefusals, TheDocumentTheyChangeIsGood) { EXPECT_EQ(refusal(small_document().dump()), ""); }

TEST(TokenizerRefusals, EveryWrongFieldIsOneLineWithItsPlace) {
  const Json special = {{"SpecialToken", {{"id", "E"}, {"type_id", 0}}}};
  const Json kText = Json::array({Json{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}), kNone = Json::object();
  const WrongField kWrong[] = {
      {"/version", "2.0", {"version '2.0'"}},
      {"/version", 1, {"version", "not text"}},
      {"/truncation", {{"max_length", 5}}, {"truncation", "null"}},
      {"/padding", {{"strategy", "BatchLongest"}}, {"padding", "null"}},
      {"/surprise", 1, {"field 'surprise'"}},
      {"/model", nullptr, {"no 'model'"}},
      {"/model", "BPE", {"model", "not an object"}},
      {"/model/type", "WordPiece", {"model 'WordPiece'", "not supported"}},
      {"/model/type", "Unigram", {"model 'Unigram'"}},
      {"/model/type", 3, {"model.type", "not text"}},
      {"/model/dropout", 0.1, {"dropout"}},
      {"/model/dropout", "no", {"dropout"}},
      {"/model/continuing_subword_prefix", "##", {"continuing_subword_prefix"}},
      {"/model/end_of_word_suffix", "</w>", {"end_of_word_suffix"}},
      {"/model/fuse_unk", "yes", {"model.fuse_unk", "not true or false"}},
      {"/model/unk_token", 5, {"model.unk_token", "not text"}},
      {"/model/cache", 5, {"field 'cache'"}},
      {"/model/vocab", nullptr, {"no 'vocab'"}},
      {"/model/vocab", Json::array({1}), {"model.vocab", "not an object"}},
      {"/model/vocab", Json::object(), {"model.vocab", "empty"}},
      {"/model/vocab/he", -1, {"id of 'he'"}},
      {"/model/vocab/he", 1.5, {"id of 'he'"}},
      {"/model/vocab/he", "7", {"id of 'he'"}},
      {"/model/vocab/he", 4194304, {"id of 'he'", "4194304"}},
      {"/model/vocab/he", 18446744073709551615u, {"id of 'he'"}},
      {"/model/vocab/he", 257, {"the id 257 of another token"}},
      {"/model/merges", nullptr, {"no 'merges'"}},
      {"/model/merges", 7, {"model.merges", "not a list"}},
      {"/model/merges/1", "l", {"merge 1", "two tokens"}},
      {"/model/merges/1", "l l l", {"merge 1", "two tokens"}},
      {"/model/merges/1", Json::array({"l"}), {"merge 1", "two tokens"}},
      {"/model/merges/1", Json::array({"l", 5}), {"merge 1", "two tokens"}},
      {"/model/merges/1", nullptr, {"merge 1", "two tokens"}},
      {"/model/merges/1", Json::array({"l", "never"}), {"merge 1", "not in the vocabulary"}},
      {"/model/merges/1", Json::array({"l", "h"}), {"merge 1", "not in the vocabulary"}},
      {"/added_tokens", 5, {"added_tokens", "not a list"}},
      {"/added_tokens/0", "x", {"added_tokens[0]", "not an object"}},
      {"/added_tokens/0/content", nullptr, {"added_tokens[0]", "no 'content'"}},
      {"/added_tokens/0/id", -3, {"added_tokens[0].id"}},
      {"/added_tokens/0/special", 1, {"added_tokens[0].special"}},
      {"/added_tokens/0/lstrip", nullptr, {"no 'lstrip'"}},
      {"/added_tokens/0/shy", true, {"field 'shy'"}},
      {"/added_tokens/0/content", std::string(5000, 'x'), {"too long"}},
      {"/normalizer", {{"type", "BertNormalizer"}}, {"normalizer 'BertNormalizer'", "not supported"}},
      {"/normalizer", {{"type", "Precompiled"}}, {"normalizer 'Precompiled'"}},
      {"/normalizer", {{"type", "NFC"}, {"x", 1}}, {"field 'x'"}},
      {"/normalizer", {{"kind", "NFC"}}, {"normalizer", "no 'type'"}},
      {"/normalizer", {{"type", "Sequence"}}, {"no 'normalizers'"}},
      {"/normalizer", {{"type", "Prepend"}}, {"no 'prepend'"}},
      {"/normalizer", {{"type", "Replace"}, {"pattern", " "}, {"content", ""}}, {"pattern", "not an object"}},
      {"/normalizer", {{"type", "Replace"}, {"pattern", {{"String", ""}}}, {"content", ""}}, {"empty text"}},
      {"/normalizer", {{"type", "Replace"}, {"pattern", {{"Glob", "*"}}}, {"content", ""}}, {"field 'Glob'"}},
      {"/pre_tokenizer", {{"type", "BertPreTokenizer"}}, {"pre-tokenizer 'BertPreTokenizer'"}},
      {"/pre_tokenizer", {{"type", "ByteLevel"}}, {"no 'add_prefix_space'"}},
      {"/pre_tokenizer/use_regex", 0, {"pre_tokenizer.use_regex"}},
      {"/pre_tokenizer", split_with({{"String", "-"}}, "Scattered"), {"behavior 'Scattered'"}},
      {"/pre_tokenizer", split_by("(a"), {"pattern '(a'", "without"}},
      {"/pre_tokenizer", split_by("a)"), {"pattern 'a)'", "without"}},
      {"/pre_tokenizer", split_by("[a"), {"class without end"}},
      {"/pre_tokenizer", split_by("[a[b]]"), {"class inside a class"}},
      {"/pre_tokenizer", split_by("[a&&b]"), {"intersection"}},
      {"/pre_tokenizer", split_by("*a"), {"nothing to repeat"}},
      {"/pre_tokenizer", split_by("(a)\\1"), {"escape '\\1'"}},
      {"/pre_tokenizer", split_by("a\\Kb"), {"escape '\\K'"}},
      {"/pre_tokenizer", split_by("a\\Xb"), {"escape '\\X'"}},
      {"/pre_tokenizer", split_by("(?m:a)"), {"group"}},
      {"/pre_tokenizer", split_by("(?<n>a)\\k<n>"), {"escape '\\k'"}},
      {"/pre_tokenizer", split_by("(*ACCEPT)"), {"group"}},
      {"/pre_tokenizer", split_by("\\p{Klingon}"), {"does not compile"}},
      {"/pre_tokenizer", split_by("\\p{L"), {"property without end"}},
      {"/pre_tokenizer", split_by("\\xFF"), {"no character"}},
      {"/pre_tokenizer", split_by("a\\"), {"backslash"}},
      {"/pre_tokenizer", split_by("(?<=a*)b"), {"does not compile"}},
      {"/pre_tokenizer", split_by(std::string(70000, 'a').c_str()), {"longer than"}},
      {"/pre_tokenizer", split_by(std::string(200, '(').c_str()), {"nested deeper"}},
      {"/pre_tokenizer", metaspace_with("replacement", "ab"), {"not one character"}},
      {"/pre_tokenizer", metaspace_with("replacement", ""), {"not one character"}},
      {"/pre_tokenizer", metaspace_with("prepend_scheme", "often"), {"prepend_scheme 'often'"}},
      {"/pre_tokenizer", metaspace_with("add_prefix_space", false), {"add_prefix_space"}},
      {"/post_processor", {{"type", "RobertaProcessing"}}, {"post-processor 'RobertaProcessing'"}},
      {"/post_processor", {{"type", "TemplateProcessing"}}, {"no 'special_tokens'"}},
      {"/post_processor", template_with(Json::array({special}), Json::object()), {"'E' is not in special_tokens"}},
      {"/post_processor", template_with(Json::array({special}), {{"E", {{"ids", Json::array({-1})}}}}), {"ids[0]"}},
      {"/post_processor", template_with(Json::array({special}), {{"E", {{"ids", 5}}}}), {"not a list"}},
      {"/post_processor",
       template_with(Json::array({Json{{"Sequence", {{"id", "B"}}}}}), Json::object()),
       {"names 'B'"}},
      {"/post_processor", template_with(Json::array({Json{{"Other", 1}}}), Json::object()), {"field 'Other'"}},
      {"/post_processor",
       {{"type", "Sequence"}, {"processors", Json::array({template_with(kText, kNone), template_with(kText, kNone)})}},
       {"second template"}},
      {"/decoder", {{"type", "WordPiece"}}, {"decoder 'WordPiece'"}},
      {"/decoder", {{"type", "CTC"}}, {"decoder 'CTC'"}},
      {"/decoder", {{"type", "Strip"}, {"content", " "}, {"start", -1}, {"stop", 0}}, {"decoder.start"}},
      {"/decoder", {{"type", "Sequence"}, {"decoders", Json::array({1})}}, {"decoders[0]", "not an object"}},
  };
  EXPECT_GE(std::size(kWrong), 40u);
  for (const WrongField& wrong : kWrong) {
    Json document = small_document();
    document[Json::json_pointer(wrong.pointer)] = wrong.value;
    expect_refused(document.dump(), wrong.says, std::string(wrong.pointer) + " = " + wrong.value.dump().substr(0, 80));
  }
}

TEST(TokenizerRefusals, WhatIsNoJsonIsOneLine) {
  const std::string good = small_document().dump();
  expect_refused("", {"not valid JSON"}, "nothing");
  expect_refused("[]", {"array, not an object"}, "a list");
  expect_refused("null", {"null, not an object"}, "null");
  expect_refused(good.substr(0, good.size() / 2), {"not valid JSON"}, "half of it");
  expect_refused(good + "x", {"not valid JSON"}, "more after it");
  expect_refused("{\"version\": \"\xFF\"}", {"not valid JSON"}, "no UTF-8");
  expect_refused("{\"version\": \"\\ud800\"}", {"not valid JSON"}, "half a surrogate");
  expect_refused("{\"version\": 1e999}", {"number"}, "a number beyond any");
  expect_refused("{\"version\": \"1.0\", \"version\": \"1.0\"}", {"'version' twice"}, "a key twice");
  expect_refused("{\"model\":" + std::string(100'000, '['), {"nested deeper"}, "a deep list");
}

TEST(TokenizerRefusals, AFileOfManyValuesTakesBoundedMemory) {
  std::string text = "{\"model\":[";
  for (int i = 0; i < 9'000'000; ++i) text += "0,";
  expect_refused(text + "0]}", {"more than 8000000 values"}, "nine million numbers");
}

TEST(TokenizerRefusals, APatternThatBacktracksWithoutEndGivesUp) {
  Json document = small_document();
  document["pre_tokenizer"] = split_by("(?:(?:a|aa)+)+[bc]");
  const Tokenizer tokenizer = tokenizer_of(document);
  EXPECT_THAT(user_error([&] { (void)tokenizer.encode(std::string(100, 'a'), Specials::add); }), HasSubstr("gives up"));
}

class TokenizerFolders : public TempFolder {};

TEST_F(TokenizerFolders, SayWhatIsMissing) {
  EXPECT_THAT(user_error([&] { (void)Tokenizer::load(folder_); }), HasSubstr("there is no"));
  write("tokenizer.json", small_document().dump());
  const Tokenizer tokenizer = Tokenizer::load(folder_);
  EXPECT_THAT(user_error([&] { (void)end_of_document(tokenizer, folder_); }), HasSubstr("eos_token"));
  write("tokenizer_config.json", R"({"eos_token": "<gone>"})");
  EXPECT_THAT(user_error([&] { (void)end_of_document(tokenizer, folder_); }), HasSubstr("'<gone>'"));
  write("tokenizer_config.json", R"({"eos_token": {"content": "<end>"}, "bos_token": null})");
  EXPECT_EQ(end_of_document(tokenizer, folder_), 261);
}

TEST_F(TokenizerFolders, CasesNameTheFirstThatDiffers) {
  const Tokenizer tokenizer = tokenizer_of(small_document());
  const auto report = [&](const std::string& cases) {
    return check_tokenizer_cases(tokenizer, write("cases.json", cases));
  };
  const std::string good =
      R"({"text":"hello","ids":[259],"plain_ids":[259],"decoded":"hello","decoded_without_special":"hello"})";
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = good;
    changed.replace(changed.find(from), from.size(), to);
    return "[" + good + "," + changed + "," + changed + "]";
  };
  EXPECT_TRUE(report("[" + good + "]").ok());
  const TokenizerCases ids = report(with("\"ids\":[259]", "\"ids\":[259,7]"));
  EXPECT_EQ(ids.differ, 2);
  EXPECT_EQ(ids.first, "case 1, text 'hello', ids: nothing where 7 is expected, from token 1 on");
  EXPECT_THAT(report(with("plain_ids\":[259]", "plain_ids\":[0]")).first, HasSubstr("plain_ids: 259 where 0"));
  EXPECT_THAT(report(with("decoded\":\"hello", "decoded\":\"Hello")).first,
              HasSubstr("decoded: 'hello' where 'Hello'"));
  EXPECT_THAT(report(with("special\":\"hello", "special\":\"")).first,
              HasSubstr("decoded_without_special: 'hello' where ''"));
  EXPECT_THAT(user_error([&] { report("[]"); }), HasSubstr("no case"));
  EXPECT_THAT(user_error([&] { report("[{}]"); }), HasSubstr("cases[0]"));
  EXPECT_THAT(user_error([&] { report("7"); }), HasSubstr("not a list"));
}

}  // namespace
}  // namespace lockstep
