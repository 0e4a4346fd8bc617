// A tokenizer.json of Hugging Face: text to token ids and back, as the library `tokenizers` does it.
//
//   const Tokenizer tokenizer = Tokenizer::load("my-model");     // my-model/tokenizer.json
//   std::vector<std::int32_t> ids = tokenizer.encode("a text", Specials::add);
//   std::string text = tokenizer.decode(ids, Specials::skip);
//
// Encoding: added tokens are found in the text (added_tokens.h); what is between them is normalized (normalizer.h),
// split into words (pre_tokenizer.h) and each word merged by ranks (bpe_model.h); a template adds special tokens
// (post_processor.h). Decoding: token_decoder.h. Byte-level BPE (GPT-2, Llama 3, Qwen2, GPT-4o) and sentencepiece-like
// BPE with byte fallback (Llama 2, Mistral) are what these add up to; what they do not cover is refused by name
// (docs/tokenizers.md).
//
// Text may be any bytes: what is not UTF-8 is replaced by U+FFFD before anything else.
//
// Threads: immutable after construction, any number may encode and decode. One that encodes much keeps a
// TokenizerScratch of its own, in which words that come again are found (2 MiB).
// Failure: UserError (bad_input_file), one line with the file, the place in it and a remedy.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bpe_model.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/post_processor.h"
#include "data/tokenizer/pre_tokenizer.h"
#include "data/tokenizer/token_decoder.h"

namespace lockstep {

// What becomes of special tokens: in encoding, whether the template's are added (those in the text always are); in
// decoding, whether special tokens become text.
enum class Specials { add, skip };

// Room of one thread, for one tokenizer.
struct TokenizerScratch {
  PatternScratch patterns;
  BpeWords words;
  std::string text, spare;
};

class Tokenizer {
 public:
  static Tokenizer load(const std::filesystem::path& folder);  // or the file itself
  Tokenizer(std::string_view json, const std::string& where);  // `where` names the file in messages

  void encode(std::string_view text, Specials specials, std::vector<std::int32_t>& ids,
              TokenizerScratch& scratch) const;
  std::vector<std::int32_t> encode(std::string_view text, Specials specials) const;

  // Ids that stand for nothing are passed over.
  std::string decode(std::span<const std::int32_t> ids, Specials specials) const;

  std::int32_t vocabulary() const { return vocabulary_; }           // every id is below it
  std::optional<std::int32_t> id_of(std::string_view token) const;  // of its text, as the file has it
  std::optional<std::string_view> text_of(std::int32_t token) const;
  const BpeModel& model() const { return model_; }
  const AddedTokens& added() const { return added_; }

  // The checksum of the file: two tokenizers with equal ones are the same.
  std::uint64_t fingerprint() const { return fingerprint_; }

 private:
  Tokenizer(const nlohmann::json& document, const std::string& where, std::string_view json);

  void encode_between(std::string_view text, bool first, std::vector<std::int32_t>& ids, TokenizerScratch& s) const;
  void encode_normalized(std::string_view text, bool first, std::vector<std::int32_t>& ids, TokenizerScratch& s) const;

  BpeModel model_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  PostProcessor post_processor_;
  TokenDecoder decoder_;
  AddedTokens added_;
  std::int32_t vocabulary_ = 0;
  std::uint64_t fingerprint_ = 0;
};

// The token that ends a document: "eos_token" of this tokenizer_config.json, which need not exist, else the first
// special token with a name that is customary for it. UserError (bad_input_file) when the file is bad.
std::optional<std::int32_t> find_end_of_document(const Tokenizer& tokenizer, const std::filesystem::path& config);
// The same of a folder that has the two files; UserError when it says none.
std::int32_t end_of_document(const Tokenizer& tokenizer, const std::filesystem::path& folder);

}  // namespace lockstep
