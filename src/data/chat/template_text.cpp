#include "data/chat/template_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/tokenizer/utf8.h"

namespace lockstep {

namespace {

// Of ASCII alone: letters of other alphabets have no case here.
char to_upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }
char to_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool is_letter(char c) { return to_lower(c) >= 'a' && to_lower(c) <= 'z'; }

// Of letters outside of ASCII nothing is known.
std::string with_case(std::string text, char (*change)(char), std::string_view filter) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) >= 0x80)
      throw TemplateError(fmt::format("'{}' of text with letters outside of ASCII is not supported", filter));
    c = change(c);
  }
  return text;
}
// Python's white space is Unicode's and four separators.
bool is_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

void require_room(const TemplateValue::List& list) {
  if (list.size() >= kMostElements) throw TemplateError("a list becomes too long");
}

}  // namespace

std::string upper_case(std::string text) { return with_case(std::move(text), to_upper, "upper"); }
std::string lower_case(std::string text) { return with_case(std::move(text), to_lower, "lower"); }

std::string capitalized(std::string text) {
  text = with_case(std::move(text), to_lower, "capitalize");
  if (!text.empty()) text[0] = to_upper(text[0]);
  return text;
}
std::string titled(std::string text, bool of_python) {
  text = with_case(std::move(text), to_lower, "title");
  bool begins = true;
  for (char& c : text) {
    if (begins) c = to_upper(c);
    // Python begins a word after whatever is no letter, Jinja's filter after spaces, '-' and brackets.
    begins = of_python ? !is_letter(c) : std::string_view(" \t\n\r\v\f-([{<").find(c) != std::string_view::npos;
  }
  return text;
}

std::string stripped(std::string_view text, const TemplateValue* of, unsigned sides) {
  std::vector<char32_t> set;
  const bool spaces = !of || of->none();
  if (!spaces) {
    const std::string& characters = string_of(*of, "what is stripped");
    for (std::size_t at = 0; at < characters.size(); at += utf8_bytes(characters[at]))
      set.push_back(utf8_character(characters, at));
  }
  const auto goes = [&](char32_t c) {
    return spaces ? is_space(c) : std::find(set.begin(), set.end(), c) != set.end();
  };
  while ((sides & kLeft) && !text.empty() && goes(utf8_character(text, 0))) text.remove_prefix(utf8_bytes(text[0]));
  while ((sides & kRight) && !text.empty()) {
    const std::size_t last = utf8_before(text, text.size());
    if (!goes(utf8_character(text, last))) break;
    text = text.substr(0, last);
  }
  return std::string(text);
}

std::string replaced(const std::string& text, const std::string& from, const std::string& to, std::int64_t most) {
  std::string out;
  std::size_t at = 0;
  if (from.empty()) throw TemplateError("replacing an empty string is not supported");
  for (std::int64_t done = 0; most < 0 || done < most; ++done) {
    const std::size_t found = text.find(from, at);
    if (found == text.npos) break;
    out += text.substr(at, found - at) + to;
    at = found + from.size();
    if (out.size() > kMostRenderedBytes) throw TemplateError("a text becomes too long");
  }
  return out + text.substr(at);
}

TemplateValue::List split(const std::string& text, const TemplateValue* by, std::int64_t most) {
  TemplateValue::List parts;
  const auto add = [&parts](std::string part) {
    require_room(parts);
    parts.emplace_back(std::move(part));
  };
  if (!by || by->none()) {
    std::size_t at = 0;
    const auto skip = [&] {
      while (at < text.size() && is_space(utf8_character(text, at))) at += utf8_bytes(text[at]);
    };
    for (skip(); at < text.size(); skip()) {
      if (most >= 0 && std::ssize(parts) == most) {
        add(text.substr(at));
        break;
      }
      const std::size_t begin = at;
      while (at < text.size() && !is_space(utf8_character(text, at))) at += utf8_bytes(text[at]);
      add(text.substr(begin, at - begin));
    }
    return parts;
  }
  const std::string& separator = string_of(*by, "what text is split by");
  if (separator.empty()) throw TemplateError("text cannot be split by an empty string");
  std::size_t at = 0;
  while (most < 0 || std::ssize(parts) < most) {
    const std::size_t found = text.find(separator, at);
    if (found == text.npos) break;
    add(text.substr(at, found - at));
    at = found + separator.size();
  }
  add(text.substr(at));
  return parts;
}

TemplateValue::List split_lines(const std::string& text) {
  TemplateValue::List lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_of("\n\r", at), text.size());
    require_room(lines);
    lines.emplace_back(text.substr(at, end - at));
    at = text.compare(end, 2, "\r\n") == 0 ? end + 2 : end + 1;
  }
  return lines;
}

std::string joined(const TemplateValue::List& parts, const std::string& by) {
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += by;
    out += parts[i].text();
    if (out.size() > kMostRenderedBytes) throw TemplateError("a text becomes too long");
  }
  return out;
}

}  // namespace lockstep
