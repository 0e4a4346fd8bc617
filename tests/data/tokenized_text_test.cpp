#include "data/tokenized_text.h"

#include <gmock/gmock.h>

#include "data/temp_folder.h"
#include "data/tokenizer/decoded_stream.h"
#include "data/tokenizer_documents.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class TokenizedTexts : public TempFolder {
 protected:
  void SetUp() override {
    TempFolder::SetUp();
    write("tokenizer/tokenizer.json", small_document().dump());
    write("tokenizer/tokenizer_config.json", R"({"eos_token": "<end>"})");
  }
};

TEST_F(TokenizedTexts, EachFileIsADocumentWithItsEnd) {
  const std::vector<std::string> paths = {write("b", " hello"), write("a", "hello hell")};
  const TokenizedText text(paths, folder_ / "tokenizer");
  std::vector<std::int32_t> ids(static_cast<std::size_t>(text.tokens()));
  text.read(0, ids);
  EXPECT_THAT(ids, ElementsAre(260, 261, 259, 32, 258, 261));
  EXPECT_EQ(text.vocabulary(), 262);
  const std::vector<std::string> same = {(folder_ / "b").string(), (folder_ / "a").string()};
  EXPECT_EQ(TokenizedText(same, folder_ / "tokenizer").fingerprint(), text.fingerprint());
  const std::vector<std::string> other = {(folder_ / "a").string(), (folder_ / "b").string()};
  EXPECT_NE(TokenizedText(other, folder_ / "tokenizer").fingerprint(), text.fingerprint());
}

TEST_F(TokenizedTexts, ATextThatEndsItselfIsEndedOnce) {
  DocumentEncoder encoder(folder_ / "tokenizer");
  const std::span<const std::int32_t> ids = encoder.encode("he<end>");
  EXPECT_THAT(std::vector(ids.begin(), ids.end()), ElementsAre(256, 261));
}

TEST_F(TokenizedTexts, RefuseAFolderWithoutTokenizer) {
  const std::vector<std::string> paths = {write("a", "hello")};
  EXPECT_THAT(user_error([&] { TokenizedText(paths, folder_); }), HasSubstr("tokenizer.json"));
}

TEST(DecodedStreams, PrintWhatATokenAddsToTheText) {
  const Tokenizer llama = Tokenizer::load(golden_tokenizer("llama2"));
  const std::string text = "Once upon a time 学 é\xF0\x9F\x98\x80 the end";
  for (const std::size_t prompt : {std::size_t{0}, std::size_t{1}, std::size_t{4}}) {
    const std::vector<std::int32_t> ids = llama.encode(text, Specials::add);
    DecodedStream stream(llama, std::span(ids).first(prompt));
    std::string printed = llama.decode(std::span(ids).first(prompt), Specials::skip);
    for (std::size_t i = prompt; i < ids.size(); ++i) {
      const std::string piece = stream.push(ids[i]);
      EXPECT_EQ(piece.find("\xEF\xBF\xBD"), std::string::npos);
      printed += piece;
    }
    EXPECT_EQ(printed + stream.finish(), text);
  }
}

}  // namespace
}  // namespace lockstep
