// Stands in for unicode.cpp in builds without ICU.
#include "base/error.h"
#include "data/tokenizer/unicode.h"

namespace lockstep {

void require_unicode(const std::string& where) {
  throw UserError(ExitCode::bad_input_file, where + ": it needs ICU, and this program was built without it",
                  "install libicu-dev and build again");
}

void append_normalized(NormalForm, std::string_view, std::string&) { require_unicode("normal forms"); }
void append_lowercase(std::string_view, std::string&) { require_unicode("lower case"); }
bool is_number(char32_t) {
  require_unicode("kinds of characters");
  return false;
}
bool is_word_character(char32_t) {
  require_unicode("kinds of characters");
  return false;
}

}  // namespace lockstep
