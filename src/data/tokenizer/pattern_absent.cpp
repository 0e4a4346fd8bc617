// Stands in for pattern.cpp in builds without PCRE2.
#include "base/error.h"
#include "data/tokenizer/pattern.h"
#include "spec/text/text_input.h"

namespace lockstep {

struct PatternScratch::Room {};
struct Pattern::Code {};

PatternScratch::PatternScratch() = default;
PatternScratch::~PatternScratch() = default;
PatternScratch::PatternScratch(PatternScratch&&) noexcept = default;
PatternScratch& PatternScratch::operator=(PatternScratch&&) noexcept = default;

Pattern::Pattern(std::string_view expression, const std::string& where) {
  throw UserError(ExitCode::bad_input_file,
                  fmt::format("{}: the pattern {} needs PCRE2, and this program was built without it", where,
                              quote_text(expression)),
                  "install libpcre2-dev and build again");
}
Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

bool Pattern::find(std::string_view, std::size_t, PatternMatch&, PatternScratch&) const { return false; }

}  // namespace lockstep
