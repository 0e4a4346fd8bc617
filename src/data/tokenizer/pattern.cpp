#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/tokenizer/pattern.h"

#include <pcre2.h>

#include <new>

#include "base/error.h"
#include "data/tokenizer/pattern_syntax.h"
#include "spec/text/text_input.h"

namespace lockstep {

// Not in the unnamed namespace: types of this file's classes have it in them.
template <auto Free>
struct PcreFree {
  template <class T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};

namespace {

constexpr std::size_t kLongestPattern = 1 << 16;
constexpr std::size_t kJitStackBytes = 1 << 20;
constexpr std::uint32_t kMostHeapKiB = 64 << 10;  // of the interpreter, used where the JIT's stack ends

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

std::string pcre_message(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct PatternScratch::Room {
  std::unique_ptr<pcre2_match_data, PcreFree<pcre2_match_data_free>> data{pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_match_context, PcreFree<pcre2_match_context_free>> context{pcre2_match_context_create(nullptr)};
  std::unique_ptr<pcre2_jit_stack, PcreFree<pcre2_jit_stack_free>> stack{
      pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr)};
};

PatternScratch::PatternScratch() : room_(std::make_unique<Room>()) {
  if (!room_->data || !room_->context || !room_->stack) throw std::bad_alloc();
  pcre2_jit_stack_assign(room_->context.get(), nullptr, room_->stack.get());
  pcre2_set_heap_limit(room_->context.get(), kMostHeapKiB);
}
PatternScratch::~PatternScratch() = default;
PatternScratch::PatternScratch(PatternScratch&&) noexcept = default;
PatternScratch& PatternScratch::operator=(PatternScratch&&) noexcept = default;

struct Pattern::Code {
  std::unique_ptr<pcre2_code, PcreFree<pcre2_code_free>> code;
  std::string expression, where;
  bool jit = false;
};

Pattern::Pattern(std::string_view expression, const std::string& where) : code_(std::make_unique<Code>()) {
  const auto refuse = [&](const std::string& problem) {
    throw UserError(ExitCode::bad_input_file,
                    fmt::format("{}: the pattern {} {}", where, quote_text(expression), problem),
                    "use a pattern that docs/tokenizers.md describes");
  };
  if (expression.size() > kLongestPattern) refuse(fmt::format("is longer than {} bytes", kLongestPattern));
  const PatternSyntax syntax = rewrite_pattern(expression);
  if (!syntax.problem.empty()) refuse(syntax.problem);
  code_->expression = expression;
  code_->where = where;
  const std::unique_ptr<pcre2_compile_context, PcreFree<pcre2_compile_context_free>> context(
      pcre2_compile_context_create(nullptr));
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  int error = 0;
  std::size_t place = 0;
  code_->code.reset(pcre2_compile(units(syntax.pcre), syntax.pcre.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &place,
                                  context.get()));
  if (!code_->code) refuse("does not compile: " + pcre_message(error));
  code_->jit = pcre2_jit_compile(code_->code.get(), PCRE2_JIT_COMPLETE) == 0;
}

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

bool Pattern::find(std::string_view text, std::size_t from, PatternMatch& match, PatternScratch& scratch) const {
  PatternScratch::Room& room = *scratch.room_;
  int result = PCRE2_ERROR_JIT_STACKLIMIT;
  if (code_->jit)
    result = pcre2_jit_match(code_->code.get(), units(text), text.size(), from, PCRE2_NO_UTF_CHECK, room.data.get(),
                             room.context.get());
  if (result == PCRE2_ERROR_JIT_STACKLIMIT)
    result = pcre2_match(code_->code.get(), units(text), text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         room.data.get(), room.context.get());
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0)
    throw UserError(ExitCode::bad_input_file,
                    fmt::format("{}: the pattern {} gives up on a text: {}", code_->where,
                                quote_text(code_->expression), pcre_message(result)),
                    "use a tokenizer whose pattern does not backtrack so much");
  const PCRE2_SIZE* place = pcre2_get_ovector_pointer(room.data.get());
  match = {place[0], place[1]};
  if (match.begin < from || match.end < match.begin) match.begin = match.end = from;  // \K is never compiled
  return true;
}

}  // namespace lockstep
