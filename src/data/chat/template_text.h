// What Python's strings do, for the filters and methods of chat templates (template_functions.h): text is UTF-8 and
// counts in characters. Letters outside of ASCII have no case here: changing theirs is refused.
//
// Failure: TemplateError.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "data/chat/template_value.h"

namespace lockstep {

std::string upper_case(std::string text);
std::string lower_case(std::string text);
std::string capitalized(std::string text);
std::string titled(std::string text, bool of_python);  // else Jinja's, which begins words elsewhere

inline constexpr unsigned kLeft = 1, kRight = 2;
// Without the characters of `of` at its sides; null or none: without white space.
std::string stripped(std::string_view text, const TemplateValue* of, unsigned sides);
// The first `most` of them; all where it is negative.
std::string replaced(const std::string& text, const std::string& from, const std::string& to, std::int64_t most);
TemplateValue::List split(const std::string& text, const TemplateValue* by, std::int64_t most);
TemplateValue::List split_lines(const std::string& text);
std::string joined(const TemplateValue::List& parts, const std::string& by);

}  // namespace lockstep
