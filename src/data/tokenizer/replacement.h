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
  // Refused where `out` would become longer than `most` bytes: some of these in a row grow a text without end.
  void append(std::string_view text, std::string& out, PatternScratch& scratch, std::size_t most) const;

 private:
  std::string text_, content_, where_;
  std::optional<Pattern> pattern_;
};

// How long a text of that many bytes may become on its way through a normalizer or a decoder.
inline constexpr std::size_t kMostGrowth = 64;
inline constexpr std::size_t most_bytes_of(std::size_t bytes) { return kMostGrowth * bytes + (std::size_t{64} << 10); }
[[noreturn]] void refuse_growth(const std::string& where);

// The "pattern" of a node: {"String": text} or {"Regex": expression}. The one that is not given is empty.
struct TextOrPattern {
  std::string text;
  std::optional<Pattern> pattern;
};
TextOrPattern read_text_or_pattern(const TokenizerNode& node);

}  // namespace lockstep
