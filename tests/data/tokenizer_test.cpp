// Over 300 lines: the reference cases, the textbook, and one test per piece of a tokenizer.json.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/error.h"
#include "data/tokenizer/tokenizer_cases.h"
#include "data/tokenizer/utf8.h"
#include "data/tokenizer_documents.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using Json = nlohmann::json;

// ---- Against Hugging Face

class ReferenceTokenizers : public testing::TestWithParam<const char*> {};

TEST_P(ReferenceTokenizers, GiveTheIdsAndTextsOfHuggingFace) {
  const Tokenizer tokenizer = Tokenizer::load(golden_tokenizer(GetParam()));
  const TokenizerCases report = check_tokenizer_cases(tokenizer, golden_tokenizer(GetParam()) + "/cases.json");
  EXPECT_GE(report.cases, 360);
  EXPECT_TRUE(report.ok()) << report.differ << " differ, first: " << report.first;
}

TEST_P(ReferenceTokenizers, GiveTheSameIdsWithAScratchThatHasSeenOtherTexts) {
  const Tokenizer tokenizer = Tokenizer::load(golden_tokenizer(GetParam()));
  std::ifstream file(golden_tokenizer(GetParam()) + "/cases.json");
  TokenizerScratch scratch;
  for (int round = 0; round < 2; ++round) {
    file.seekg(0);
    for (const Json& item : Json::parse(file)) {
      std::vector<std::int32_t> ids;
      tokenizer.encode(item["text"].get<std::string>(), Specials::add, ids, scratch);
      ASSERT_EQ(ids, item["ids"].get<std::vector<std::int32_t>>()) << item["text"];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ReferenceTokenizers, testing::Values("gpt2", "llama2", "llama3", "qwen2"));

// ---- Against a textbook

// The definition and nothing else: the pair of the lowest rank, the leftmost of equal ones, is merged until none is
// left.
class TextbookBpe {
 public:
  explicit TextbookBpe(const Json& document) : vocabulary_(document["model"]["vocab"]) {
    int rank = 0;
    for (const Json& merge : document["model"]["merges"])
      ranks_[{merge[0].get<std::string>(), merge[1].get<std::string>()}] = rank++;
  }

  std::vector<std::int32_t> encode(std::vector<std::string> symbols) const {
    while (true) {
      int best = std::numeric_limits<int>::max();
      std::size_t place = 0;
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
        const auto found = ranks_.find({symbols[i], symbols[i + 1]});
        if (found != ranks_.end() && found->second < best) best = found->second, place = i;
      }
      if (best == std::numeric_limits<int>::max()) break;
      symbols[place] += symbols[place + 1];
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(place) + 1);
    }
    std::vector<std::int32_t> ids;
    for (const std::string& symbol : symbols) ids.push_back(vocabulary_.at(symbol).get<std::int32_t>());
    return ids;
  }
  bool knows(const std::string& symbol) const { return vocabulary_.contains(symbol); }

 private:
  Json vocabulary_;
  std::map<std::pair<std::string, std::string>, int> ranks_;
};

std::vector<std::string> characters_of(const std::string& text) {
  std::vector<std::string> characters;
  for (std::size_t at = 0; at < text.size(); at += utf8_bytes(text[at]))
    characters.push_back(text.substr(at, utf8_bytes(text[at])));
  return characters;
}

// Words and letters that merge, spaces in runs, and any code points at all.
std::string random_text(std::mt19937& random) {
  static const char* const kParts[] = {"the", "train", "ing",   " ",  "  ",  "\n",  "e",  "s",
                                       "t",   "tion",  "layer", "▁",  "é",   "ла",  "学", "\xF0\x9F\x98\x80",
                                       "123", "<s",    ".",     "\t", " of", "rank"};
  std::string text;
  const auto below = [&](std::uint32_t end) { return random() % end; };
  const std::uint32_t parts = below(50) == 0 ? 400 : below(30);
  for (std::uint32_t i = 0; i < parts; ++i) {
    if (below(4) > 0) {
      text += kParts[below(std::size(kParts))];
      continue;
    }
    char32_t c = below(3) == 0 ? below(0x110000) : below(0x3000);
    if (c >= 0xD800 && c < 0xE000) c = 0x20;
    append_utf8(text, c);
  }
  return text;
}

constexpr int kTexts = 10'000;

TEST(Tokenizer, ByteLevelBpeIsTheTextbooks) {
  Json document = golden_document("gpt2");
  document["pre_tokenizer"]["use_regex"] = false;  // a text is one word, short or long
  document["added_tokens"] = Json::array();
  const Tokenizer tokenizer = tokenizer_of(document);
  const TextbookBpe textbook(document);
  std::mt19937 random(1);
  TokenizerScratch scratch;
  for (int i = 0; i < kTexts; ++i) {
    const std::string text = random_text(random);
    std::vector<std::int32_t> ids;
    tokenizer.encode(text, Specials::skip, ids, scratch);
    ASSERT_EQ(ids, textbook.encode(characters_of(spell_bytes(text)))) << text;
    ASSERT_EQ(tokenizer.decode(ids, Specials::add), text);
  }
}

TEST(Tokenizer, SentencepieceLikeBpeIsTheTextbooks) {
  Json document = golden_document("llama2");
  document["added_tokens"] = Json::array();
  const Tokenizer tokenizer = tokenizer_of(document);
  const TextbookBpe textbook(document);
  std::mt19937 random(2);
  TokenizerScratch scratch;
  for (int i = 0; i < kTexts; ++i) {
    const std::string text = random_text(random);
    std::vector<std::string> symbols;
    for (const std::string& character : characters_of(text.empty() ? "" : " " + text)) {
      const std::string seen = character == " " ? "▁" : character;
      if (textbook.knows(seen)) {
        symbols.push_back(seen);
      } else {
        for (const char byte : seen) symbols.push_back(fmt::format("<0x{:02X}>", static_cast<unsigned char>(byte)));
      }
    }
    std::vector<std::int32_t> ids;
    tokenizer.encode(text, Specials::skip, ids, scratch);
    ASSERT_EQ(ids, textbook.encode(symbols)) << text;
  }
}

TEST(Tokenizer, TakesALongWordWithoutSpaces) {
  const Tokenizer tokenizer = Tokenizer::load(golden_tokenizer("gpt2"));
  const std::string text(1 << 20, 'a');
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, Specials::add), Specials::skip), text);
}

TEST(Tokenizer, ReplacesWhatIsNotUtf8) {
  const Tokenizer tokenizer = tokenizer_of(small_document());
  EXPECT_EQ(tokenizer.encode("hello\xFF", Specials::skip), tokenizer.encode("hello\xEF\xBF\xBD", Specials::skip));
  EXPECT_EQ(utf8_of_bytes("a\xE2\x96z\xC0\xF0\x9F"), "a\xEF\xBF\xBDz\xEF\xBF\xBD\xEF\xBF\xBD");
}

// ---- Pieces

// One word per token, so that the words of a pre-tokenizer can be seen.
std::vector<std::string> words_of(const Json& pre_tokenizer, const std::string& text) {
  const Json document = {{"pre_tokenizer", pre_tokenizer}};
  const std::string where = "words";
  const PreTokenizer splitter(TokenizerNode(document, where, ""));
  std::vector<std::string> words;
  PatternScratch scratch;
  splitter.split(text, true, scratch, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

Json split_at(const char* behaviour, bool invert = false) {
  return {{"type", "Split"}, {"pattern", {{"String", "-"}}}, {"behavior", behaviour}, {"invert", invert}};
}

TEST(PreTokenizer, SplitsWithEachBehaviour) {
  const std::string text = "the-final--countdown";
  EXPECT_THAT(words_of(split_at("Removed"), text), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(words_of(split_at("Isolated"), text), ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(words_of(split_at("MergedWithPrevious"), text), ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(words_of(split_at("MergedWithNext"), text), ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(words_of(split_at("Contiguous"), text), ElementsAre("the", "-", "final", "--", "countdown"));
  EXPECT_THAT(words_of(split_at("Removed", true), text), ElementsAre("-", "-", "-"));
  EXPECT_THAT(words_of(split_at("MergedWithNext", true), "a-b"), ElementsAre("a-", "b"));
}

TEST(PreTokenizer, SplitsAtPatternsWithEmptyMatches) {
  const Json split = {{"type", "Split"}, {"pattern", {{"Regex", "(?=[A-Z])"}}}, {"behavior", "Isolated"}};
  EXPECT_THAT(words_of(split, "oneTwoÄThree"), ElementsAre("one", "TwoÄ", "Three"));
}

TEST(PreTokenizer, PutsMetaspacesByItsScheme) {
  const auto metaspace = [](const char* scheme, bool split) {
    return Json{{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}, {"split", split}};
  };
  EXPECT_THAT(words_of(metaspace("always", true), "Hey  friend"), ElementsAre("▁Hey", "▁", "▁friend"));
  EXPECT_THAT(words_of(metaspace("always", true), " Hey"), ElementsAre("▁Hey"));
  EXPECT_THAT(words_of(metaspace("never", true), "Hey you"), ElementsAre("Hey", "▁you"));
  EXPECT_THAT(words_of(metaspace("first", false), "Hey you"), ElementsAre("▁Hey▁you"));
  const Json after = {{"type", "Sequence"},
                      {"pretokenizers", Json::array({split_at("Isolated"), metaspace("first", true)})}};
  EXPECT_THAT(words_of(after, "a-b"), ElementsAre("▁a", "-", "b"));
}

TEST(PreTokenizer, SplitsDigits) {
  const auto digits = [](bool individual) { return Json{{"type", "Digits"}, {"individual_digits", individual}}; };
  EXPECT_THAT(words_of(digits(true), "a12½b"), ElementsAre("a", "1", "2", "½", "b"));
  EXPECT_THAT(words_of(digits(false), "a12½b"), ElementsAre("a", "12½", "b"));
}

TEST(PreTokenizer, SpellsBytesWhereMoreStepsFollow) {
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", false}};
  const Json space = {{"type", "Split"}, {"pattern", {{"String", "Ġ"}}}, {"behavior", "MergedWithNext"}};
  EXPECT_THAT(words_of({{"type", "Sequence"}, {"pretokenizers", Json::array({bytes, space})}}, "a é"),
              ElementsAre("Ġa", "ĠÃ©"));
  EXPECT_THAT(words_of(bytes, "a é"), ElementsAre(" a é"));
}

TEST(PreTokenizer, KnowsTheSplitsOfTheField) {
  // GPT-4o's: letters by case, with contractions; numbers of three digits at most.
  const Json gpt4o = {
      {"type", "Split"},
      {"pattern",
       {{"Regex",
         R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}}},
      {"behavior", "Isolated"}};
  EXPECT_THAT(words_of(gpt4o, "We'LL helloWorld 12345.\n\n  x"),
              ElementsAre("We'LL", " hello", "World", " ", "123", "45", ".\n\n", " ", " x"));
  // GPT-4's has possessive repetitions; in Ruby {1,3}+ is none, so digits stay together.
  const Json gpt4 = {
      {"type", "Split"},
      {"pattern",
       {{"Regex",
         R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)"}}},
      {"behavior", "Isolated"}};
  EXPECT_THAT(words_of(gpt4, "it's 12345 ok"), ElementsAre("it", "'s", " ", "12345", " ok"));
}

// ---- Added tokens

Json added(const char* text, std::initializer_list<const char*> flags) {
  Json token = {{"id", 0},         {"content", text},     {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", false}};
  for (const char* flag : flags) token[flag] = true;
  return token;
}

std::vector<std::string> tokens_of(const Json& document, const std::string& text) {
  const Tokenizer tokenizer = tokenizer_of(document);
  std::vector<std::string> tokens;
  for (const std::int32_t id : tokenizer.encode(text, Specials::add)) tokens.emplace_back(*tokenizer.text_of(id));
  return tokens;
}

TEST(AddedTokens, TheLongestAtTheFirstPlaceWins) {
  Json document = small_document();
  document["added_tokens"] = Json::array({added("<a>", {}), added("<a><b>", {}), added("b><", {})});
  EXPECT_THAT(tokens_of(document, "<a><b><a>"), ElementsAre("<a><b>", "<a>"));
}

TEST(AddedTokens, StripWhiteSpaceOnTheirSides) {
  Json document = small_document();
  document["added_tokens"] = Json::array({added("<l>", {"lstrip"}), added("<r>", {"rstrip"})});
  EXPECT_THAT(tokens_of(document, "h \n<l> h"), ElementsAre("h", "<l>", "Ġ", "h"));
  EXPECT_THAT(tokens_of(document, "h <r> \n<l>h"), ElementsAre("h", "Ġ", "<r>", "<l>", "h"));
}

TEST(AddedTokens, SingleWordsHaveNoWordBesideThem) {
  Json document = small_document();
  document["added_tokens"] = Json::array({added("he", {"single_word"})});
  EXPECT_THAT(tokens_of(document, "hello he_ -he-"), ElementsAre("hello", "Ġ", "he", "_", "Ġ", "-", "he", "-"));
  const Tokenizer tokenizer = tokenizer_of(document);
  EXPECT_EQ(tokenizer.encode("-he-", Specials::skip).size(), 3u);
}

TEST(AddedTokens, WhatFollowsOneIsNotTheBeginningOfTheText) {
  Json document = small_document();
  document["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}};
  document["model"]["vocab"]["▁"] = 300;
  EXPECT_THAT(tokens_of(document, "h<end>h"), ElementsAre("▁", "h", "<end>", "h"));
  EXPECT_THAT(tokens_of(document, "<end>h"), ElementsAre("<end>", "h"));
}

TEST(AddedTokens, NormalizedOnesAreFoundInNormalizedText) {
  Json document = small_document();
  document["normalizer"] = {{"type", "Lowercase"}};
  document["added_tokens"] = Json::array({added("<Day>", {"normalized"}), added("<NO>", {})});
  EXPECT_THAT(tokens_of(document, "<DAY><NO><no>"), ElementsAre("<Day>", "<NO>", "<", "n", "o", ">"));
}

TEST(AddedTokens, HaveTheIdsThatHuggingFaceGives) {
  Json document = small_document();  // 261 tokens
  document["added_tokens"] = Json::array({added("<x>", {}), added("hello", {}), added("<y>", {})});
  document["added_tokens"][2]["id"] = 999;  // whatever the file says
  const Tokenizer tokenizer = tokenizer_of(document);
  EXPECT_EQ(tokenizer.id_of("<x>"), 261);
  EXPECT_EQ(tokenizer.id_of("hello"), 259);
  EXPECT_EQ(tokenizer.id_of("<y>"), 262);
  EXPECT_EQ(tokenizer.vocabulary(), 263);
}

// ---- Normalizers, decoders, templates, unknown characters

TEST(Normalizers, ChangeTheTextInTheirOrder) {
  const std::string where = "normalizer";
  const auto normalized = [&](const Json& steps, std::string text) {
    const Json document = {{"normalizer", {{"type", "Sequence"}, {"normalizers", steps}}}};
    const Normalizer normalizer(TokenizerNode(document, where, ""));
    std::string spare;
    PatternScratch scratch;
    normalizer.apply(text, spare, scratch);
    return text;
  };
  EXPECT_EQ(normalized(Json::array({{{"type", "NFC"}}}), "e\xCC\x81"), "\xC3\xA9");
  EXPECT_EQ(normalized(Json::array({{{"type", "NFD"}}}), "\xC3\xA9"), "e\xCC\x81");
  EXPECT_EQ(normalized(Json::array({{{"type", "NFKC"}}}), "ﬁ①"), "fi1");
  EXPECT_EQ(normalized(Json::array({{{"type", "NFKD"}}}), "\xC3\xA9ﬁ"),
            "e\xCC\x81"
            "fi");
  EXPECT_EQ(normalized(Json::array({{{"type", "Lowercase"}}}), "ÄBΣİ"), "äbσi\xCC\x87");
  EXPECT_EQ(normalized(Json::array({{{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}}}), " \n a b\t "),
            "a b");
  const Json prepend = {{"type", "Prepend"}, {"prepend", "▁"}};
  const Json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}};
  const Json runs = {{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}};
  EXPECT_EQ(normalized(Json::array({prepend, replace}), "a b"), "▁a▁b");
  EXPECT_EQ(normalized(Json::array({runs, replace, prepend}), "a   b"), "▁a▁b");
  EXPECT_EQ(normalized(Json::array({prepend, replace}), ""), "");
}

std::string decoded(const Json& decoder, std::vector<std::string> tokens) {
  const Json document = {{"decoder", decoder}};
  const std::string where = "decoder";
  PatternScratch scratch;
  return TokenDecoder(TokenizerNode(document, where, "")).decode(std::move(tokens), scratch);
}

TEST(TokenDecoders, GiveTheTextBack) {
  const Json metaspace = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}};
  EXPECT_EQ(decoded(metaspace, {"▁Hey", "▁friend▁"}), "Hey friend ");
  EXPECT_EQ(decoded({{"type", "ByteLevel"}}, {"Ġa", "Ã", "©", "<|x y|>", "Ã"}), " aé<|x y|>\xEF\xBF\xBD");
  EXPECT_EQ(decoded({{"type", "ByteFallback"}}, {"a", "<0xE5>", "<0x8f>", "<0xab>", "<0xE5>x"}), "a叫<0xE5>x");
  EXPECT_EQ(decoded({{"type", "ByteFallback"}}, {"<0xE5>", "<0x8f>"}), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(decoded({{"type", "Strip"}, {"content", "H"}, {"start", 1}, {"stop", 1}}, {"HeyH", "HHH", "H"}), "eyH");
  EXPECT_EQ(decoded(nullptr, {"a", "b"}), "a b");
  const Json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
  const Json llama = {{"type", "Sequence"}, {"decoders", Json::array({metaspace, Json{{"type", "Fuse"}}, strip})}};
  EXPECT_EQ(decoded(llama, {"▁", " a", "▁ b"}), "a  b");
}

TEST(Templates, PutSpecialTokensAroundTheText) {
  Json document = small_document();
  const Json end = {{"SpecialToken", {{"id", "E"}, {"type_id", 0}}}};
  const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const Json one = {{"type", "TemplateProcessing"},
                    {"single", Json::array({end, text, end})},
                    {"pair", Json::array()},
                    {"special_tokens",
                     {{"E", {{"id", "E"}, {"ids", Json::array({261, 7})}, {"tokens", Json::array({"<end>", "x"})}}}}}};
  document["post_processor"] = {{"type", "Sequence"}, {"processors", Json::array({Json{{"type", "ByteLevel"}}, one})}};
  const Tokenizer tokenizer = tokenizer_of(document);
  EXPECT_THAT(tokenizer.encode("hello", Specials::add), ElementsAre(261, 7, 259, 261, 7));
  EXPECT_THAT(tokenizer.encode("hello", Specials::skip), ElementsAre(259));
  EXPECT_THAT(tokenizer.encode("", Specials::add), ElementsAre(261, 7, 261, 7));
}

TEST(UnknownCharacters, AreFusedOrNotOrPassedOver) {
  Json document = small_document();
  document["pre_tokenizer"] = nullptr;
  document["model"]["vocab"]["<unk>"] = 300;
  EXPECT_THAT(tokens_of(document, "学学a"), ElementsAre("a"));
  document["model"]["unk_token"] = "<unk>";
  EXPECT_THAT(tokens_of(document, "学学a学"), ElementsAre("<unk>", "<unk>", "a", "<unk>"));
  document["model"]["fuse_unk"] = true;
  EXPECT_THAT(tokens_of(document, "学学a学"), ElementsAre("<unk>", "a", "<unk>"));
  // As in the reference, what falls back to bytes goes before an unknown character that still waits.
  document["model"]["byte_fallback"] = true;
  document["model"]["vocab"]["<0xE2>"] = 301;
  document["model"]["vocab"]["<0x82>"] = 302;
  document["model"]["vocab"]["<0xAC>"] = 303;
  EXPECT_THAT(tokens_of(document, "学€学a"), ElementsAre("<0xE2>", "<0x82>", "<0xAC>", "<unk>", "a"));
  document["model"]["unk_token"] = "<none>";
  EXPECT_THROW(tokens_of(document, "学"), UserError);
}

TEST(Merges, AWordThatIsATokenStaysOneWhereMergesAreIgnored) {
  Json document = small_document();
  document["model"]["vocab"]["xyz"] = 300;
  EXPECT_THAT(tokens_of(document, "xyz"), ElementsAre("x", "y", "z"));
  document["model"]["ignore_merges"] = true;
  EXPECT_THAT(tokens_of(document, "xyz"), ElementsAre("xyz"));
}

TEST(Merges, MayJoinWordsAcrossASpace) {
  Json document = golden_document("llama2");
  document["added_tokens"] = Json::array();
  EXPECT_THAT(tokens_of(document, "a b"), ElementsAre("<s>", "▁a", "▁b"));
  document["model"]["vocab"]["▁a▁b"] = 5000;
  document["model"]["merges"].push_back(Json::array({"▁a", "▁b"}));
  EXPECT_THAT(tokens_of(document, "a b"), ElementsAre("<s>", "▁a▁b"));
}

TEST(Merges, MayJoinSpaces) {
  Json document = golden_document("llama2");
  document["added_tokens"] = Json::array();
  EXPECT_THAT(tokens_of(document, "a   b"), ElementsAre("<s>", "▁a", "▁", "▁", "▁b"));
  document["model"]["vocab"]["▁▁"] = 5000;
  document["model"]["merges"].insert(document["model"]["merges"].begin(), Json::array({"▁", "▁"}));
  EXPECT_THAT(tokens_of(document, "a   b"), ElementsAre("<s>", "▁a", "▁▁", "▁b"));
}

TEST(Merges, MayBeWrittenAsLinesAndWithoutTheModelsType) {
  Json document = small_document();
  document["model"]["merges"] = {"h e", "l l", "he ll", "hell o", "Ġ hello"};
  document["model"].erase("type");
  EXPECT_THAT(tokens_of(document, "hello hello"), ElementsAre("hello", "Ġhello"));
}

}  // namespace
}  // namespace lockstep
