// Regular expressions in Ruby's syntax of Oniguruma, which Hugging Face tokenizers use, rewritten for PCRE2.
//
// Where the two libraries mean the same, the text stays. It changes here:
//   \s \S \d \D \w \W \h \H \b \B   Oniguruma's Unicode classes, written out (PCRE2's \s has U+180E, its \w has no
//   marks) X{n,m}+                         in Ruby repeats the repetition; in PCRE2 it would be possessive X{n}?  X{,n}
//   in Ruby (?:X{n})? and X{0,n} \p{Han}                         the script; PCRE2 would take the script's extensions
//   (…) (?<name>…)                  groups that capture nothing, since nothing refers to them
//   ^ $ .                           of lines, as always in Ruby: compiled with PCRE2_MULTILINE and \n as the line's end
// What could mean something else is refused by its name: references and calls to groups, nested and intersected
// classes, options other than i, \X \R \K \G and other letters.
#pragma once
#include <string>
#include <string_view>

namespace lockstep {

struct PatternSyntax {
  std::string pcre;
  std::string problem;  // empty: none; else to be read after the pattern: "has …"
};

PatternSyntax rewrite_pattern(std::string_view expression);

}  // namespace lockstep
