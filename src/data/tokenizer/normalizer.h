// The normalizer of a tokenizer.json: what is done to the text before it is split.
//
// NFC, NFD, NFKC, NFKD, Lowercase; Prepend (a text before what is not empty); Replace (a text or a pattern by a text);
// Strip (white space at either end); and Sequence of these. Others are refused by name, and so is what makes a text
// more than kMostGrowth times as long (replacement.h).
//
// Threads: immutable; each thread has its own PatternScratch. Failure: UserError (bad_input_file), one line.
#pragma once
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "data/tokenizer/pattern.h"
#include "data/tokenizer/replacement.h"
#include "data/tokenizer/tokenizer_json.h"
#include "data/tokenizer/unicode.h"

namespace lockstep {

class Normalizer {
 public:
  explicit Normalizer(const TokenizerNode& document);  // its "normalizer", if there is one

  bool empty() const { return steps_.empty(); }
  // In place; `spare` is room that keeps its size from call to call.
  void apply(std::string& text, std::string& spare, PatternScratch& scratch) const;

 private:
  struct Lowercase {};
  struct Prepend {
    std::string text, where;
  };
  struct Strip {
    bool left, right;
  };
  using Step = std::variant<NormalForm, Lowercase, Prepend, Replacement, Strip>;

  void read(const TokenizerNode& node);

  std::vector<Step> steps_;
};

}  // namespace lockstep
