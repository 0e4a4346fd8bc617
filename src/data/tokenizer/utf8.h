// Characters of UTF-8 text. All but the last two functions take text that is valid.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

// Bytes of the character that starts with this byte.
inline std::size_t utf8_bytes(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The character that starts at `at`.
inline char32_t utf8_character(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const auto tail = [&](std::size_t i) { return byte(i) & 0x3F; };
  switch (utf8_bytes(text[at])) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1F) << 6 | tail(1);
    case 3:
      return (byte(0) & 0x0F) << 12 | tail(1) << 6 | tail(2);
    default:
      return (byte(0) & 0x07) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3);
  }
}

// Where the character before `at` starts; at > 0.
inline std::size_t utf8_before(std::string_view text, std::size_t at) {
  do --at;
  while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

// Unicode's White_Space, which does not change.
constexpr bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

void append_utf8(std::string& text, char32_t character);

// Of any bytes: how many from the start are valid UTF-8.
std::size_t valid_utf8(std::string_view bytes);

// Any bytes as UTF-8: each longest part that can become no character is replaced by U+FFFD, as Rust and Python do.
std::string utf8_of_bytes(std::string_view bytes);

}  // namespace lockstep
