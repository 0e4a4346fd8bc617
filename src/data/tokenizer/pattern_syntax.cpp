// Over 300 lines: one walk over an expression, with a method for each construct of its syntax.
#include "data/tokenizer/pattern_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "data/tokenizer/utf8.h"
#include "spec/text/text_input.h"

namespace lockstep {
namespace {

// Inside a class. \p{Z} is all white space but U+0009 to U+000D and U+0085.
constexpr std::string_view kSpaceClass = "\\x{9}-\\x{D}\\x{85}\\p{Z}";
constexpr std::string_view kNoSpaceClass =
    "\\x{0}-\\x{8}\\x{E}-\\x{1F}\\x{21}-\\x{84}\\x{86}-\\x{9F}\\x{A1}-\\x{167F}\\x{1681}-\\x{1FFF}\\x{200B}-\\x{2027}"
    "\\x{202A}-\\x{202E}\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}\\x{3001}-\\x{10FFFF}";
constexpr std::string_view kWordClass = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr std::string_view kHexClass = "0-9a-fA-F";

// Properties with a value of their own in PCRE2; a longer name that is none of them is a script's.
constexpr std::array<std::string_view, 9> kBinaryProperties{
    "alphabetic",  "alpha", "whitespace",           "uppercase", "lowercase",
    "ideographic", "emoji", "extendedpictographic", "any"};

struct PatternProblem {
  std::string text;
};

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

std::string code_text(char32_t code) { return fmt::format("\\x{{{:X}}}", static_cast<std::uint32_t>(code)); }

class PatternRewriter {
 public:
  explicit PatternRewriter(std::string_view from) : from_(from) {}

  std::string run() {
    while (at_ < from_.size()) step();
    if (!groups_.empty()) problem("a '(' without ')'");
    return std::move(out_);
  }

 private:
  static constexpr std::size_t kNone = std::string::npos;

  [[noreturn]] static void problem(const std::string& what) { throw PatternProblem{"has " + what}; }

  bool looks(std::string_view text) const { return from_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    if (!looks(text)) return false;
    at_ += text.size();
    return true;
  }
  void atom(std::string_view text) {
    atom_ = out_.size();
    out_ += text;
  }

  void step() {
    const char c = from_[at_];
    switch (c) {
      case '\\':
        return escape();
      case '[':
        return atom_class();
      case '(':
        return open_group();
      case ')':
        if (groups_.empty()) problem("a ')' without '('");
        atom_ = groups_.back();
        groups_.pop_back();
        out_ += ')';
        ++at_;
        return;
      case '|':
      case '^':
      case '$':
        out_ += c;
        ++at_;
        atom_ = kNone;
        return;
      case '*':
      case '+':
      case '?':
        return quantifier();
      case '{':
        return interval();
      case '.':
        atom(".");
        ++at_;
        return;
      case ']':
      case '}':
        atom(c == ']' ? "\\]" : "\\}");
        ++at_;
        return;
      default:
        break;
    }
    const std::size_t bytes = utf8_bytes(c);
    atom(from_.substr(at_, bytes));
    at_ += bytes;
  }

  void quantifier() {
    if (atom_ == kNone) problem(fmt::format("'{}' with nothing to repeat", from_[at_]));
    out_ += from_[at_++];
    if (looks("?") || looks("+")) out_ += from_[at_++];  // lazy, possessive
    if (looks("*") || looks("+") || looks("?")) problem("a repeated repetition");
  }

  void interval() {
    std::size_t end = at_ + 1;
    const auto digits = [&] {
      const std::size_t begin = end;
      while (end < from_.size() && is_ascii_digit(from_[end])) ++end;
      return from_.substr(begin, end - begin);
    };
    const std::string_view low = digits();
    const bool comma = end < from_.size() && from_[end] == ',';
    if (comma) ++end;
    const std::string_view high = comma ? digits() : std::string_view();
    const bool is_interval = end < from_.size() && from_[end] == '}' && (!low.empty() || !high.empty());
    if (!is_interval) {  // an ordinary brace
      atom("\\{");
      ++at_;
      return;
    }
    if (atom_ == kNone) problem("an interval with nothing to repeat");
    at_ = end + 1;
    out_ += fmt::format("{{{}{}{}}}", low.empty() ? "0" : low, comma ? "," : "", high);
    const bool fixed = !comma;
    if (looks("+") || looks("*") || (fixed && looks("?"))) {
      out_.insert(atom_, "(?:");
      out_ += ')';
      out_ += from_[at_++];
    } else if (looks("?")) {
      out_ += from_[at_++];
    }
    if (looks("*") || looks("+") || looks("?")) problem("a repeated repetition");
  }

  void open_group() {
    const std::size_t start = out_.size();
    if (take("(?#")) {
      const std::size_t end = from_.find(')', at_);
      if (end == std::string_view::npos) problem("a comment without end");
      at_ = end + 1;
      return;
    }
    if (at_ == 0 && take("(?i)")) {
      out_ += "(?i)";
      return;
    }
    bool plain = false;
    for (const std::string_view kind : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:", "(?-i:"}) {
      if (!take(kind)) continue;
      out_ += kind;
      plain = true;
      break;
    }
    if (!plain) {
      if (take("(?<")) {  // a name, which nothing may refer to
        const std::size_t end = from_.find('>', at_);
        if (end == std::string_view::npos) problem("a group's name without end");
        at_ = end + 1;
      } else if (looks("(?") || looks("(*")) {
        problem(fmt::format("the group {}", quote_text(from_.substr(at_, 4))));
      } else {
        ++at_;
      }
      out_ += "(?:";
    }
    groups_.push_back(start);
    if (groups_.size() > 90) problem("groups nested deeper than 90");
    atom_ = kNone;
  }

  // ---- Escapes, outside and inside of classes

  std::optional<char32_t> character_escape() {
    const char e = from_[at_];
    const auto hex = [&](std::size_t least, std::size_t most) {
      char32_t code = 0;
      std::size_t count = 0;
      for (; count < most && at_ < from_.size(); ++count, ++at_) {
        const char h = from_[at_];
        const int digit = is_ascii_digit(h)      ? h - '0'
                          : h >= 'a' && h <= 'f' ? h - 'a' + 10
                          : h >= 'A' && h <= 'F' ? h - 'A' + 10
                                                 : -1;
        if (digit < 0) break;
        code = code << 4 | static_cast<char32_t>(digit);
      }
      if (count < least || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) problem("an escape of no character");
      return code;
    };
    switch (e) {
      case 'r':
        ++at_;
        return U'\r';
      case 'n':
        ++at_;
        return U'\n';
      case 't':
        ++at_;
        return U'\t';
      case 'f':
        ++at_;
        return U'\f';
      case 'v':
        ++at_;
        return U'\v';
      case 'a':
        ++at_;
        return U'\a';
      case 'e':
        ++at_;
        return char32_t{0x1B};
      case 'u':
        ++at_;
        return hex(4, 4);
      case 'x': {
        ++at_;
        if (take("{")) {
          const char32_t code = hex(1, 6);
          if (!take("}")) problem("an escape of no character");
          return code;
        }
        const char32_t code = hex(1, 2);
        if (code >= 0x80) problem("an escape of a byte that is no character");
        return code;
      }
      default:
        break;
    }
    if (is_ascii_letter(e) || is_ascii_digit(e)) return std::nullopt;
    const char32_t code = utf8_character(from_, at_);
    at_ += utf8_bytes(e);
    return code;
  }

  std::string property() {  // after \p or \P
    const bool negated = from_[at_ - 1] == 'P';
    if (!take("{")) problem("a property without braces");
    const bool inverted = take("^");
    const std::size_t end = from_.find('}', at_);
    if (end == std::string_view::npos) problem("a property without end");
    const std::string_view name = from_.substr(at_, end - at_);
    at_ = end + 1;
    std::string plain;
    for (const char c : name) {
      if (c == '_' || c == '-' || c == ' ') continue;
      if (!is_ascii_letter(c)) problem("the property " + quote_text(name));
      plain += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    if (plain.empty()) problem("a property without name");
    const bool known = plain.size() <= 2 ||
                       std::find(kBinaryProperties.begin(), kBinaryProperties.end(), plain) != kBinaryProperties.end();
    return fmt::format("\\{}{{{}{}}}", negated != inverted ? 'P' : 'p', known ? "" : "sc:", name);
  }

  void escape() {
    if (++at_ == from_.size()) problem("a backslash at its end");
    const char e = from_[at_];
    const auto of_class = [&](std::string_view content, bool negated) {
      ++at_;
      atom(fmt::format("[{}{}]", negated ? "^" : "", content));
    };
    const auto border = [&](std::string_view text) {
      ++at_;
      out_ += text;
      atom_ = kNone;
    };
    switch (e) {
      case 's':
      case 'S':
        return of_class(kSpaceClass, e == 'S');
      case 'd':
      case 'D':
        return of_class("\\p{Nd}", e == 'D');
      case 'w':
      case 'W':
        return of_class(kWordClass, e == 'W');
      case 'h':
      case 'H':
        return of_class(kHexClass, e == 'H');
      case 'A':
        return border("\\A");
      case 'z':
        return border("\\z");
      case 'Z':
        return border("\\Z");
      case 'b':
        return border(fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", kWordClass));
      case 'B':
        return border(fmt::format("(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))", kWordClass));
      case 'p':
      case 'P': {
        ++at_;
        const std::string text = property();
        atom(text);
        return;
      }
      default:
        break;
    }
    const auto code = character_escape();
    if (!code) problem(fmt::format("the escape '\\{}'", e));
    atom(code_text(*code));
  }

  void atom_class() {
    std::string text = "[";
    ++at_;
    if (take("^")) text += '^';
    if (looks("]")) problem("an empty class");
    while (true) {
      if (at_ == from_.size()) problem("a class without end");
      if (take("]")) break;
      if (take("[:")) {
        text += posix();
      } else if (looks("[")) {
        problem("a class inside a class");
      } else if (looks("&&")) {
        problem("an intersection of classes");
      } else if (take("\\")) {
        text += class_escape();
      } else {
        const std::size_t bytes = utf8_bytes(from_[at_]);
        text += from_.substr(at_, bytes);
        at_ += bytes;
      }
    }
    atom(text + "]");
  }

  std::string class_escape() {
    if (at_ == from_.size()) problem("a backslash at its end");
    switch (from_[at_]) {
      case 's':
        ++at_;
        return std::string(kSpaceClass);
      case 'S':
        ++at_;
        return std::string(kNoSpaceClass);
      case 'd':
        ++at_;
        return "\\p{Nd}";
      case 'D':
        ++at_;
        return "\\P{Nd}";
      case 'w':
        ++at_;
        return std::string(kWordClass);
      case 'h':
        ++at_;
        return std::string(kHexClass);
      case 'b':
        ++at_;
        return "\\x{8}";
      case 'p':
      case 'P':
        ++at_;
        return property();
      default:
        break;
    }
    const char e = from_[at_];
    const auto code = character_escape();
    if (!code) problem(fmt::format("the escape '\\{}' in a class", e));
    return code_text(*code);
  }

  std::string posix() {
    struct Named {
      std::string_view name, content;
    };
    for (const Named& named :
         {Named{"alpha:]", "\\p{Alphabetic}"}, Named{"digit:]", "\\p{Nd}"}, Named{"space:]", kSpaceClass},
          Named{"word:]", kWordClass}, Named{"alnum:]", "\\p{Alphabetic}\\p{Nd}"}, Named{"upper:]", "\\p{Uppercase}"},
          Named{"lower:]", "\\p{Lowercase}"}})
      if (take(named.name)) return std::string(named.content);
    problem("the class " + quote_text(from_.substr(at_ - 2, 12)));
  }

  std::string_view from_;
  std::size_t at_ = 0;
  std::string out_;
  std::size_t atom_ = kNone;         // where what a quantifier repeats begins in out_
  std::vector<std::size_t> groups_;  // where each open group begins
};

}  // namespace

PatternSyntax rewrite_pattern(std::string_view expression) {
  try {
    return {PatternRewriter(expression).run(), ""};
  } catch (const PatternProblem& found) {
    return {"", found.text};
  }
}

}  // namespace lockstep
