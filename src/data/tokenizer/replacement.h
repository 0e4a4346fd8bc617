// "Replace" of normalizers and decoders: every occurrence of a text or of a pattern becomes another text.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "data/tokenizer/pattern.h"
#include "data/tokenizer/tokenizer_json.h"

namespace lockstep {

class Replacement {
 public:
  explicit Replacement(const TokenizerNode& node);  // with "pattern" and "content"

  bool rare(std::string_view text) const;  // nothing to replace, as far as a quick look says
  void append(std::string_view text, std::string& out, PatternScratch& scratch) const;

 private:
  std::string text_, content_;
  std::optional<Pattern> pattern_;
};

// The "pattern" of a node: {"String": text} or {"Regex": expression}. The one that is not given is empty.
struct TextOrPattern {
  std::string text;
  std::optional<Pattern> pattern;
};
TextOrPattern read_text_or_pattern(const TokenizerNode& node);

}  // namespace lockstep
