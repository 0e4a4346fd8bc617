// A regular expression of a tokenizer.json, run by PCRE2 with its just-in-time compiler.
//
// Hugging Face tokenizers run them with Oniguruma in Ruby's syntax; pattern_syntax.h says how they are rewritten. Text
// is valid UTF-8; classes are those of the Unicode version of the installed PCRE2.
//
// A build without PCRE2 has pattern_absent.cpp in its place, which refuses every pattern by the library's name.
//
// Threads: a Pattern is immutable; each thread has its own PatternScratch.
// Failure: UserError (bad_input_file) for a pattern that does not compile, and for a text on which it gives up (its
// number of steps is bounded).
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep {

// Room for matching, used for any number of patterns.
class PatternScratch {
 public:
  PatternScratch();
  ~PatternScratch();
  PatternScratch(PatternScratch&&) noexcept;
  PatternScratch& operator=(PatternScratch&&) noexcept;

 private:
  friend class Pattern;
  struct Room;
  std::unique_ptr<Room> room_;
};

struct PatternMatch {
  std::size_t begin, end;  // bytes of the text
};

class Pattern {
 public:
  // `where` begins the message when it is refused.
  Pattern(std::string_view expression, const std::string& where);
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

  // The first match that begins at `from` or later. Characters before `from` are seen by what looks back.
  bool find(std::string_view text, std::size_t from, PatternMatch& match, PatternScratch& scratch) const;

  // Calls visit(PatternMatch) for all matches from left to right. None overlap; an empty one does not follow another
  // directly.
  template <class Visit>
  void each(std::string_view text, PatternScratch& scratch, Visit&& visit) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

template <class Visit>
void Pattern::each(std::string_view text, PatternScratch& scratch, Visit&& visit) const {
  PatternMatch match{};
  std::size_t from = 0, last = std::string_view::npos;
  while (from <= text.size() && find(text, from, match, scratch)) {
    if (match.begin == match.end && match.end == last) {
      // The same place again: look one character further.
      if (from == text.size()) return;
      do ++from;
      while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80);
      continue;
    }
    from = last = match.end;
    visit(match);
  }
}

}  // namespace lockstep
