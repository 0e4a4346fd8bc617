// Text as bytes: ids 0..255 are the bytes themselves, 256 ends a document. Vocabulary: 257.
//
// No training, no files, no unknown words: every text is encoded exactly.
//
// A character of UTF-8 is one to four tokens, so what a model has said so far may end inside one. Utf8Stream is for
// printing while generating: it gives bytes only up to the last whole character and keeps the rest for later. What can
// no longer become a character is replaced by U+FFFD, so its output is always valid UTF-8, and is the text itself
// wherever that is valid.
//
// Threads: the functions are pure; a Utf8Stream belongs to one thread at a time.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spec/run/run_spec.h"

namespace lockstep {

inline constexpr std::int32_t kEndOfDocument = 256;
static_assert(kByteVocabulary == kEndOfDocument + 1);

// One id a byte; no end of document is added.
std::vector<std::int32_t> encode_bytes(std::string_view text);

// Whether the tokens of such data are bytes. What a token file holds is not known.
inline bool speaks_bytes(const DataSpec& data) {
  if (!data.tokenizer.empty()) return false;
  return data.example || !data.text.empty() ||
         (!data.sources.empty() &&
          std::ranges::all_of(data.sources, [](const SourceSpec& source) { return !source.text.empty(); }));
}

class Utf8Stream {
 public:
  // What may be printed now; at most three bytes are held back. Ids that are no bytes are skipped.
  std::string push(std::span<const std::int32_t> ids);
  std::string push(std::int32_t id) { return push({&id, 1}); }
  // The end: U+FFFD if a character was left unfinished, else nothing. The stream can then be used again.
  std::string finish();

 private:
  void push_byte(unsigned char byte, std::string& out);

  std::string held_;                              // the beginning of a character
  int missing_ = 0;                               // bytes it still needs
  unsigned char lowest_ = 0x80, highest_ = 0xBF;  // what the next of them may be
};

}  // namespace lockstep
