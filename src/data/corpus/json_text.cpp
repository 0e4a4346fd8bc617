#include "data/corpus/json_text.h"

#include <fmt/format.h>

#include "data/tokenizer/utf8.h"
#include "spec/text/text_input.h"

namespace lockstep {

namespace {

constexpr int kDeepestValue = 512;

class JsonScanner {
 public:
  JsonScanner(std::string_view line, std::string_view key, std::string& text) : line_(line), key_(key), text_(text) {}

  bool scan() {
    blanks();
    if (next() != '{') return fail("an object is expected");
    if (!object(1)) return false;
    blanks();
    if (at_ != line_.size()) return fail("there is more after the object");
    if (found_ == 1 && is_text_) return true;
    problem_ = found_ == 0  ? fmt::format("has no key {}", quote_text(key_))
               : found_ > 1 ? fmt::format("has the key {} twice", quote_text(key_))
                            : fmt::format("has a key {} that is no text", quote_text(key_));
    return false;
  }
  const std::string& problem() const { return problem_; }

 private:
  char next() const { return at_ < line_.size() ? line_[at_] : '\0'; }
  bool fail(const char* reason) {
    problem_ = fmt::format("is not JSON at byte {}: {}", at_ + 1, reason);
    return false;
  }
  void blanks() {
    while (at_ < line_.size() && (line_[at_] == ' ' || line_[at_] == '\t' || line_[at_] == '\n' || line_[at_] == '\r'))
      ++at_;
  }

  bool object(int depth) {
    ++at_;
    blanks();
    if (next() == '}') return ++at_, true;
    for (;;) {
      std::string name;
      if (next() != '"') return fail("a key is expected");
      if (!string(depth == 1 ? &name : nullptr)) return false;
      blanks();
      if (next() != ':') return fail("a colon is expected");
      ++at_;
      blanks();
      if (depth == 1 && name == key_ && ++found_ == 1 && next() == '"') {
        is_text_ = true;
        if (!string(&text_)) return false;
      } else if (!value(depth)) {
        return false;
      }
      blanks();
      if (next() == '}') return ++at_, true;
      if (next() != ',') return fail("a comma or the object's end is expected");
      ++at_;
      blanks();
    }
  }

  bool array(int depth) {
    ++at_;
    blanks();
    if (next() == ']') return ++at_, true;
    for (;;) {
      if (!value(depth)) return false;
      blanks();
      if (next() == ']') return ++at_, true;
      if (next() != ',') return fail("a comma or the array's end is expected");
      ++at_;
      blanks();
    }
  }

  bool value(int depth) {
    const char first = next();
    if (first == '{' || first == '[') {
      if (depth == kDeepestValue) return fail("values nest too deep");
      return first == '{' ? object(depth + 1) : array(depth + 1);
    }
    if (first == '"') return string(nullptr);
    for (const std::string_view word : {"true", "false", "null"})
      if (line_.substr(at_).starts_with(word)) return at_ += word.size(), true;
    return number();
  }

  bool digits() {
    const std::size_t from = at_;
    while (next() >= '0' && next() <= '9') ++at_;
    return at_ > from || fail("a digit is expected");
  }

  bool number() {
    if (next() == '-') ++at_;
    if (next() == '0')
      ++at_;
    else if (next() < '1' || next() > '9')
      return fail("a value is expected");
    else
      digits();
    if (next() == '.' && (++at_, !digits())) return false;
    if (next() == 'e' || next() == 'E') {
      ++at_;
      if (next() == '+' || next() == '-') ++at_;
      if (!digits()) return false;
    }
    return true;
  }

  // From its first quote to after its last; appends what it stands for to `to`, which may be null.
  bool string(std::string* to) {
    ++at_;
    for (;;) {
      const std::size_t from = at_;
      while (at_ < line_.size() && line_[at_] != '"' && line_[at_] != '\\' &&
             static_cast<unsigned char>(line_[at_]) >= 0x20)
        ++at_;
      const std::string_view plain = line_.substr(from, at_ - from);
      if (const std::size_t valid = valid_utf8(plain); valid != plain.size()) {
        at_ = from + valid;
        return fail("what is there is not UTF-8");
      }
      if (to) *to += plain;
      if (at_ == line_.size()) return fail("the line ends inside a string");
      if (line_[at_] == '"') return ++at_, true;
      if (line_[at_] != '\\') return fail("a control character in a string is not escaped");
      if (!escape(to)) return false;
    }
  }

  bool escape(std::string* to) {
    ++at_;
    constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    if (const std::size_t which = at_ < line_.size() ? kNames.find(line_[at_]) : kNames.npos; which != kNames.npos) {
      if (to) *to += kMeanings[which];
      return ++at_, true;
    }
    if (next() != 'u') return fail("an unknown escape");
    ++at_;
    char32_t character = 0, low = 0;
    if (!four_digits(character)) return false;
    if (character >= 0xDC00 && character < 0xE000) return fail("half of a surrogate pair");
    if (character >= 0xD800 && character < 0xDC00) {
      if (!line_.substr(at_).starts_with("\\u")) return fail("half of a surrogate pair");
      at_ += 2;
      if (!four_digits(low)) return false;
      if (low < 0xDC00 || low >= 0xE000) return fail("half of a surrogate pair");
      character = 0x10000 + ((character - 0xD800) << 10) + (low - 0xDC00);
    }
    if (to) append_utf8(*to, character);
    return true;
  }

  bool four_digits(char32_t& character) {
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = next();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return fail("four hexadecimal digits are expected");
      character = character * 16 + static_cast<char32_t>(digit);
    }
    return true;
  }

  std::string_view line_, key_;
  std::string& text_;
  std::string problem_;
  std::size_t at_ = 0;
  int found_ = 0;  // times that the key is there
  bool is_text_ = false;
};

}  // namespace

bool json_text(std::string_view line, std::string_view key, std::string& text, std::string& problem) {
  JsonScanner scanner(line, key, text);
  if (scanner.scan()) return true;
  problem = scanner.problem();
  return false;
}

}  // namespace lockstep
