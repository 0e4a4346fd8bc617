// GPT-2's alphabet of bytes: each of the 256 bytes is one printable character, so that BPE over bytes can be written as
// text. Printable bytes of Latin-1 are themselves; the other 68 are U+0100, U+0101, … in their order. A space is 'Ġ'.
#pragma once
#include <string>
#include <string_view>

namespace lockstep {

char32_t letter_of_byte(unsigned char byte);
int byte_of_letter(char32_t letter);  // -1: no letter of this alphabet

std::string spell_bytes(std::string_view bytes);  // in letters

}  // namespace lockstep
