#include "data/tokenizer/decoded_stream.h"

#include <algorithm>

namespace lockstep {

DecodedStream::DecodedStream(const Tokenizer& tokenizer, std::span<const std::int32_t> prompt)
    : tokenizer_(&tokenizer), ids_(prompt.begin(), prompt.end()) {
  printed_ = tokenizer.decode(ids_, Specials::skip).size();
}

std::string DecodedStream::from(const std::string& text, std::size_t end) {
  if (end <= printed_) return "";
  std::string piece = text.substr(printed_, end - printed_);
  printed_ = end;
  return piece;
}

std::string DecodedStream::push(std::int32_t id) {
  constexpr std::string_view kUnfinished = "\xEF\xBF\xBD";
  ids_.push_back(id);
  const std::string text = tokenizer_->decode(ids_, Specials::skip);
  std::string_view whole = text;
  // Four bytes at most are of one character, so more than three in a row are not waiting for anything.
  for (int held = 0; held < 3 && whole.ends_with(kUnfinished); ++held) whole.remove_suffix(kUnfinished.size());
  return from(text, whole.size());
}

std::string DecodedStream::finish() {
  const std::string text = tokenizer_->decode(ids_, Specials::skip);
  return from(text, text.size());
}

}  // namespace lockstep
