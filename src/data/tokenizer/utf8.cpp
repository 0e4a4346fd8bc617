#include "data/tokenizer/utf8.h"

#include <cstdint>
#include <cstring>

#include "data/byte_tokenizer.h"

namespace lockstep {

void append_utf8(std::string& text, char32_t c) {
  const auto add = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (c < 0x80) {
    add(c);
  } else if (c < 0x800) {
    add(0xC0 | c >> 6), add(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    add(0xE0 | c >> 12), add(0x80 | (c >> 6 & 0x3F)), add(0x80 | (c & 0x3F));
  } else {
    add(0xF0 | c >> 18), add(0x80 | (c >> 12 & 0x3F)), add(0x80 | (c >> 6 & 0x3F)), add(0x80 | (c & 0x3F));
  }
}

std::size_t valid_utf8(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  std::size_t i = 0;
  while (i < bytes.size()) {
    std::uint64_t eight = 0;
    if (bytes.size() - i >= sizeof eight) {  // most text is mostly ASCII
      std::memcpy(&eight, bytes.data() + i, sizeof eight);
      if ((eight & 0x8080808080808080u) == 0) {
        i += sizeof eight;
        continue;
      }
    }
    const unsigned char first = at(i);
    if (first < 0x80) {
      ++i;
      continue;
    }
    if (first < 0xC2 || first > 0xF4) return i;
    const std::size_t count = utf8_bytes(bytes[i]);
    if (bytes.size() - i < count) return i;
    // Table 3-7 of the Unicode standard: no overlong forms, no surrogates, nothing beyond U+10FFFF.
    const unsigned char low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (at(i + 1) < low || at(i + 1) > high) return i;
    for (std::size_t k = 2; k < count; ++k)
      if ((at(i + k) & 0xC0) != 0x80) return i;
    i += count;
  }
  return i;
}

std::string utf8_of_bytes(std::string_view bytes) {
  const std::size_t valid = valid_utf8(bytes);
  std::string text(bytes.substr(0, valid));
  if (valid == bytes.size()) return text;
  Utf8Stream rest;
  text += rest.push(encode_bytes(bytes.substr(valid)));
  return text += rest.finish();
}

}  // namespace lockstep
