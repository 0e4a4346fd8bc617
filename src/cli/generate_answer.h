// What `lockstep generate` prints: the text or the ids of an answer as they come, or JSON when it is whole.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "cli/text_model.h"
#include "data/byte_tokenizer.h"
#include "data/stop_strings.h"
#include "data/tokenizer/decoded_stream.h"
#include "train/continuation.h"

namespace lockstep {

class Answer {
 public:
  struct Options {
    bool ids = false;   // not text
    bool json = false;  // print {prompt_tokens, tokens, text, tokens_per_s, finish} at the end
    std::vector<std::string> stops = {};
  };

  // The source outlives it.
  Answer(const Options& options, const TextModel& source, const std::vector<std::int32_t>& prompt);

  // Whether there may be more: not after a stop string, nor where it could not be told.
  bool add(std::int32_t token);
  void finish(const std::vector<std::int32_t>& prompt, Finish why, double seconds);
  std::size_t tokens() const { return tokens_.size(); }
  const std::string& text() const { return whole_; }

 private:
  bool print(const std::string& piece);

  const Options& options_;
  std::vector<std::int32_t> tokens_;
  std::string whole_;
  Utf8Stream bytes_;
  std::optional<DecodedStream> decoded_;  // of a tokenizer; none: bytes
  StopStrings stops_;
};

}  // namespace lockstep
