#include "data/chat/template_tokens.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"
#include "data/tokenizer/utf8.h"
#include "spec/text/text_input.h"

namespace lockstep {

void refuse_template(const std::string& where, int line, const std::string& problem, const std::string& remedy) {
  // Names in it are the template's own, and as long as it likes.
  constexpr std::size_t kLongestProblem = 300;
  std::size_t end = std::min(problem.size(), kLongestProblem);
  while (end < problem.size() && (static_cast<unsigned char>(problem[end]) & 0xC0) == 0x80) --end;
  throw UserError(ExitCode::bad_input_file,
                  fmt::format("{}: line {} of the chat template: {}{}", where, line, problem.substr(0, end),
                              end < problem.size() ? "…" : ""),
                  remedy);
}

namespace {

constexpr std::string_view kSpaces = " \t\n\r\v\f";

bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

using Kind = TemplateToken::Kind;

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& where) : where_(where) {
    for (std::size_t i = 0; i < source.size(); ++i) {  // a line ends with \n, whatever it ended with
      if (source[i] == '\r') {
        source_ += '\n';
        if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      } else {
        source_ += source[i];
      }
    }
    if (source_.ends_with('\n')) source_.pop_back();
  }

  std::vector<TemplateToken> run() {
    while (at_ < source_.size()) {
      const std::size_t open = find_open();
      if (open == source_.npos) {
        add_text(source_.substr(at_));
        break;
      }
      take_text(open);
      if (source_[open + 1] == '#')
        skip_comment(open);
      else
        take_tag(open);
    }
    add(Kind::end);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const { refuse_template(where_, line_, problem, kMendTemplate); }

  void add(Kind kind, std::string text = {}) {
    tokens_.push_back({.kind = kind, .line = line_, .text = std::move(text)});
  }
  void add_text(std::string_view text) {
    if (!text.empty()) add(Kind::text, std::string(text));
  }
  // Moves to `to`, counting lines.
  void advance(std::size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  std::size_t find_open() const {
    for (std::size_t i = at_; (i = source_.find('{', i)) != source_.npos; ++i)
      if (i + 1 < source_.size() && (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#')) return i;
    return source_.npos;
  }

  // The text before a tag: '-' takes all white space at its end away; a tag that is no {{ }} takes that of its own line
  // if nothing else is on it, unless it has a '+'.
  void take_text(std::size_t open) {
    std::string_view text = std::string_view(source_).substr(at_, open - at_);
    const char sign = open + 2 < source_.size() ? source_[open + 2] : ' ';
    if (sign == '-') {
      text = text.substr(0, text.find_last_not_of(kSpaces) + 1);
    } else if (sign != '+' && source_[open + 1] != '{') {
      const std::size_t line = text.rfind('\n') + 1;  // 0 if there is none
      const bool line_starts = line > 0 || at_ == 0 || source_[at_ - 1] == '\n';
      if (line_starts && text.find_first_not_of(kSpaces, line) == text.npos) text = text.substr(0, line);
    }
    add_text(text);
    advance(open);
  }

  // After a tag: '-' takes all white space away, and a tag that is no {{ }} the end of its line, unless it has a '+'.
  void end_tag(std::size_t after, char sign, bool takes_line_end) {
    if (sign == '-')
      after = std::min(source_.find_first_not_of(kSpaces, after), source_.size());
    else if (takes_line_end && sign != '+' && after < source_.size() && source_[after] == '\n')
      ++after;
    advance(after);
  }

  void skip_comment(std::size_t open) {
    const std::size_t close = source_.find("#}", open + 2);
    if (close == source_.npos) fail("a comment that does not end");
    end_tag(close + 2, close > open + 2 ? source_[close - 1] : ' ', true);
  }

  void take_tag(std::size_t open) {
    const bool prints = source_[open + 1] == '{';
    const std::string_view close = prints ? "}}" : "%}";
    add(prints ? Kind::print_begin : Kind::tag_begin);
    at_ = open + 2;
    if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) ++at_;
    std::string open_brackets;
    for (;;) {
      advance(std::min(source_.find_first_not_of(kSpaces, at_), source_.size()));
      const std::string_view rest = std::string_view(source_).substr(at_);
      if (rest.empty()) fail("a tag that does not end");
      const bool signed_end =
          rest.size() > 2 && (rest[0] == '-' || (rest[0] == '+' && !prints)) && rest.substr(1).starts_with(close);
      if (open_brackets.empty() && (signed_end || rest.starts_with(close))) {
        add(prints ? Kind::print_end : Kind::tag_end);
        return end_tag(at_ + (signed_end ? 3 : 2), signed_end ? rest[0] : ' ', !prints);
      }
      take_token(rest, open_brackets);
    }
  }

  void take_token(std::string_view rest, std::string& open_brackets) {
    const char c = rest[0];
    if (begins_name(c)) {
      std::size_t size = 1;
      while (size < rest.size() && (begins_name(rest[size]) || is_digit(rest[size]))) ++size;
      add(Kind::name, std::string(rest.substr(0, size)));
      at_ += size;
    } else if (is_digit(c)) {
      take_number(rest);
    } else if (c == '\'' || c == '"') {
      take_string(c);
    } else {
      constexpr std::array<std::string_view, 6> kTwo{"==", "!=", "<=", ">=", "//", "**"};
      constexpr std::string_view kOne = "+-*/%~<>=()[]{}.,:|";
      std::size_t size = 0;
      for (const std::string_view two : kTwo)
        if (rest.starts_with(two)) size = 2;
      if (size == 0 && kOne.find(c) != kOne.npos) size = 1;
      if (size == 0) fail(fmt::format("{} means nothing in a tag", quote_text(rest.substr(0, 1))));
      if (c == '(' || c == '[' || c == '{') open_brackets += c;
      if (c == ')' || c == ']' || c == '}') {
        if (open_brackets.empty()) fail(fmt::format("'{}' closes nothing", c));
        open_brackets.pop_back();  // the parser sees whether it is the right one
      }
      add(Kind::sign, std::string(rest.substr(0, size)));
      at_ += size;
    }
  }

  void take_number(std::string_view rest) {
    std::size_t size = 0;
    while (size < rest.size() && is_digit(rest[size])) ++size;
    TemplateToken token{.kind = Kind::whole, .line = line_};
    if (size + 1 < rest.size() && rest[size] == '.' && is_digit(rest[size + 1])) {
      token.kind = Kind::real;
      ++size;
      while (size < rest.size() && is_digit(rest[size])) ++size;
    }
    if (size < rest.size() && (rest[size] == 'e' || rest[size] == 'E')) {
      std::size_t digits = size + 1;
      if (digits < rest.size() && (rest[digits] == '-' || rest[digits] == '+')) ++digits;
      if (digits < rest.size() && is_digit(rest[digits])) {
        token.kind = Kind::real;
        size = digits;
        while (size < rest.size() && is_digit(rest[size])) ++size;
      }
    }
    token.text = rest.substr(0, size);
    const char* const end = token.text.data() + token.text.size();
    const auto error = token.kind == Kind::whole ? std::from_chars(token.text.data(), end, token.whole).ec
                                                 : std::from_chars(token.text.data(), end, token.real).ec;
    if (error != std::errc()) fail(fmt::format("the number {} is too large", quote_text(token.text)));
    tokens_.push_back(std::move(token));
    at_ += size;
  }

  void take_string(char quote) {
    const int line = line_;
    std::string text;
    std::size_t i = at_ + 1;
    for (;; ++i) {
      if (i >= source_.size()) fail("a string that does not end");
      if (source_[i] == quote) break;
      if (source_[i] != '\\') {
        text += source_[i];
        continue;
      }
      if (++i >= source_.size()) fail("a string that does not end");
      take_escape(i, text);
    }
    advance(i + 1);
    tokens_.push_back({.kind = Kind::string, .line = line, .text = std::move(text)});
  }

  // After a backslash, as Python reads it; leaves `i` at the last character of the escape.
  void take_escape(std::size_t& i, std::string& text) const {
    constexpr std::string_view kLetters = "nrtbfav0\\'\"", kMeanings("\n\r\t\b\f\a\v\0\\'\"", 11);
    const char c = source_[i];
    if (c == 'x' || c == 'u' || c == 'U') {
      const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      std::uint32_t character = 0;
      const char* const begin = source_.data() + i + 1;
      const bool there = i + digits < source_.size();
      if (!there || std::from_chars(begin, begin + digits, character, 16).ptr != begin + digits ||
          character > 0x10FFFF || (character >= 0xD800 && character < 0xE000))
        fail(fmt::format("'\\{}' needs {} hexadecimal digits of a character", c, digits));
      append_utf8(text, character);
      i += digits;
    } else if (const auto at = kLetters.find(c); at != kLetters.npos) {
      text += kMeanings[at];
    } else if (c != '\n') {
      text += '\\';
      text += c;
    }
  }

  const std::string& where_;
  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::vector<TemplateToken> tokens_;
};

}  // namespace

std::vector<TemplateToken> template_tokens(std::string_view source, const std::string& where) {
  return Lexer(source, where).run();
}

}  // namespace lockstep
