// What depends on tables of Unicode: normal forms, letter case and kinds of characters. From ICU, whose Unicode version
// is that of the installed library; code points newer than it are taken to be unassigned.
//
// A build without ICU has unicode_absent.cpp in its place: every function then throws what missing_unicode() says.
// Threads: pure functions.
#pragma once
#include <string>
#include <string_view>

namespace lockstep {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

// `text` is valid UTF-8. Appends to `out`.
void append_normalized(NormalForm form, std::string_view text, std::string& out);
void append_lowercase(std::string_view text, std::string& out);  // character by character, as Rust's to_lowercase

bool is_number(char32_t character);          // general category N
bool is_word_character(char32_t character);  // \w of Unicode's regular expressions: letters, marks, digits, connectors

// Throws UserError (bad_input_file) when this build has no ICU. `where` names what needs it.
void require_unicode(const std::string& where);

}  // namespace lockstep
