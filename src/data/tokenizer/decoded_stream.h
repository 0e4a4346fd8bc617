// The text of tokens as they come, for printing while a model generates.
//
// Each push gives what the new token adds to the text of all before it, the prompt's included: so a decoder that treats
// the first token differently (sentencepiece's space) sees the whole. What may still become a character, a text that
// ends with U+FFFD, is held back until the next token or the end. Special tokens give no text.
//
// A push decodes all tokens again: n tokens cost n²/2 in all, below a millisecond each for some thousands.
// One thread at a time; the tokenizer must outlive it.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace lockstep {

class DecodedStream {
 public:
  DecodedStream(const Tokenizer& tokenizer, std::span<const std::int32_t> prompt);

  std::string push(std::int32_t id);
  std::string finish();

 private:
  std::string from(const std::string& text, std::size_t end);

  const Tokenizer* tokenizer_;
  std::vector<std::int32_t> ids_;
  std::size_t printed_;  // bytes
};

}  // namespace lockstep
