// The decoder of a tokenizer.json: texts of tokens back to one text.
//
//   ByteLevel     letters of the byte alphabet to bytes, what is not UTF-8 to U+FFFD
//   Metaspace     U+2581 to spaces, in the first token to nothing
//   ByteFallback  <0x00> … <0xFF> to bytes, U+FFFD for each of a run that is not UTF-8
//   Fuse          one text of all; Strip: characters at the ends of each; Replace; Sequence
// Others are refused by name. Without a decoder the texts are joined with spaces.
//
// Threads: immutable; each thread has its own PatternScratch. Failure: UserError (bad_input_file), one line.
#pragma once
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "data/tokenizer/pattern.h"
#include "data/tokenizer/replacement.h"
#include "data/tokenizer/tokenizer_json.h"

namespace lockstep {

class TokenDecoder {
 public:
  explicit TokenDecoder(const TokenizerNode& document);  // its "decoder", if there is one

  std::string decode(std::vector<std::string> tokens, PatternScratch& scratch) const;

 private:
  struct ByteLevel {};
  struct ByteFallback {};
  struct Fuse {};
  struct Metaspace {
    std::string replacement;
    bool strips_first;
  };
  struct Strip {
    std::string character;
    std::int64_t start, stop;  // at most as many
  };
  using Step = std::variant<ByteLevel, ByteFallback, Fuse, Metaspace, Strip, Replacement>;

  void read(const TokenizerNode& node);

  std::vector<Step> steps_;
  bool present_ = false;
};

}  // namespace lockstep
