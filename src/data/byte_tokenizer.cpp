#include "data/byte_tokenizer.h"

#include <utility>

namespace lockstep {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

bool is_byte(std::int32_t id) { return id >= 0 && id < kEndOfDocument; }

}  // namespace

std::vector<std::int32_t> encode_bytes(std::string_view text) {
  std::vector<std::int32_t> ids(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) ids[i] = static_cast<unsigned char>(text[i]);
  return ids;
}

std::string Utf8Stream::push(std::span<const std::int32_t> ids) {
  std::string out;
  for (const std::int32_t id : ids) {
    if (is_byte(id)) push_byte(static_cast<unsigned char>(id), out);
  }
  return out;
}

std::string Utf8Stream::finish() {
  missing_ = 0;
  return std::exchange(held_, {}).empty() ? std::string() : std::string(kReplacement);
}

// Table 3-7 of the Unicode standard: the second byte's range excludes overlong forms, surrogates and what is beyond
// U+10FFFF.
void Utf8Stream::push_byte(unsigned char byte, std::string& out) {
  if (missing_ > 0) {
    if (byte >= lowest_ && byte <= highest_) {
      held_ += static_cast<char>(byte);
      lowest_ = 0x80, highest_ = 0xBF;
      if (--missing_ == 0) out += std::exchange(held_, {});
      return;
    }
    out += finish();  // and this byte begins anew
  }
  if (byte < 0x80) {
    out += static_cast<char>(byte);
  } else if (byte < 0xC2 || byte > 0xF4) {
    out += kReplacement;  // begins nothing
  } else {
    held_ = static_cast<char>(byte);
    missing_ = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
    lowest_ = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
    highest_ = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
  }
}

}  // namespace lockstep
