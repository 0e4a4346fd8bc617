#include "data/tokenizer/byte_alphabet.h"

#include <array>

#include "data/tokenizer/utf8.h"

namespace lockstep {
namespace {

constexpr bool prints_as_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr auto kLetters = [] {
  std::array<char32_t, 256> letters{};
  char32_t next = 256;
  for (int byte = 0; byte < 256; ++byte)
    letters[static_cast<std::size_t>(byte)] = prints_as_itself(byte) ? static_cast<char32_t>(byte) : next++;
  return letters;
}();

constexpr std::size_t kLetterEnd = 256 + 68;

constexpr auto kBytesOfLetters = [] {
  std::array<short, kLetterEnd> bytes{};
  bytes.fill(-1);
  for (std::size_t byte = 0; byte < 256; ++byte) bytes[kLetters[byte]] = static_cast<short>(byte);
  return bytes;
}();

}  // namespace

char32_t letter_of_byte(unsigned char byte) { return kLetters[byte]; }

int byte_of_letter(char32_t letter) { return letter < kLetterEnd ? kBytesOfLetters[letter] : -1; }

std::string spell_bytes(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char byte : bytes) append_utf8(text, kLetters[static_cast<unsigned char>(byte)]);
  return text;
}

}  // namespace lockstep
