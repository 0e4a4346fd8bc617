// The model of a tokenizer.json: a vocabulary and its merges (BPE), applied to one word after another.
//
// A word becomes symbols, then symbols are merged (bpe_merge.h). Symbols are the word's characters (encode_text) or its
// bytes, spelled in the byte alphabet (encode_bytes). A character that is not in the vocabulary becomes its bytes as
// <0x00> … <0xFF> with `byte_fallback`, else `unk_token`, else nothing. With `ignore_merges` a word that is a token as
// a whole stays one.
//
// A text without pre-tokenizer, as Llama 2's, is one word. It is cut before each U+2581 that follows another character,
// where no merge can reach across: that gives the same tokens, from the cache.
//
// Threads: immutable after construction; each thread has its own BpeWords.
// Failure: UserError (bad_input_file), one line.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/bpe_merge.h"
#include "data/tokenizer/token_table.h"
#include "data/tokenizer/tokenizer_json.h"
#include "data/tokenizer/word_cache.h"

namespace lockstep {

// Room of one thread, for one model.
struct BpeWords {
  BpeScratch scratch;
  WordCache cache;
};

class BpeModel {
 public:
  explicit BpeModel(const TokenizerNode& model);

  const TokenTable& tokens() const { return tokens_; }
  bool ignores_merges() const { return ignore_merges_; }
  // The token of what no other token spells.
  std::optional<std::int32_t> unknown() const { return has_unknown_ ? std::optional(unknown_) : std::nullopt; }

  // Both append to `ids`.
  void encode_text(std::string_view word, std::vector<std::int32_t>& ids, BpeWords& words) const;
  void encode_bytes(std::string_view word, std::vector<std::int32_t>& ids, BpeWords& words) const;

 private:
  enum class Spelling { characters, bytes };

  void read_vocabulary(const TokenizerNode& model);
  void read_merges(const TokenizerNode& model);
  void encode_word(std::string_view word, Spelling spelling, std::vector<std::int32_t>& ids, BpeWords& words) const;
  void spell_characters(std::string_view word, std::vector<std::int32_t>& symbols) const;
  void spell_in_bytes(std::string_view word, std::vector<std::int32_t>& symbols) const;
  std::int32_t unknown_for(std::string_view character) const;

  std::string where_;
  TokenTable tokens_;
  MergeTable merges_;
  std::string unknown_text_;
  bool has_unknown_ = false, fuse_unknown_ = false, byte_fallback_ = false, ignore_merges_ = false;
  std::int32_t unknown_ = TokenTable::kAbsent;
  std::array<std::int32_t, 256> letters_{};    // ids of the byte alphabet
  std::array<std::int32_t, 256> fallbacks_{};  // ids of <0x00> … <0xFF>
  std::array<std::int32_t, 128> ascii_{};      // ids of characters
  bool cuts_at_spaces_ = false;                // at U+2581
};

}  // namespace lockstep
