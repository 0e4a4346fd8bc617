// The tokens of a chat template: text between tags, and what is in tags, with the white space rules applied.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

inline constexpr const char* kMendTemplate = "mend the template, or fetch it again";

struct TemplateToken {
  enum class Kind { text, print_begin, print_end, tag_begin, tag_end, name, string, whole, real, sign, end };
  Kind kind;
  int line;
  std::string text = {};   // as it is meant: of a string, its value
  std::int64_t whole = 0;  // of a whole number
  double real = 0;
};

// UserError (bad_input_file) naming template and line.
std::vector<TemplateToken> template_tokens(std::string_view source, const std::string& where);

[[noreturn]] void refuse_template(const std::string& where, int line, const std::string& problem,
                                  const std::string& remedy);

}  // namespace lockstep
