// Reads the tokens of a chat template one by one, for the parser (template_syntax.h).
#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "data/chat/template_tokens.h"
#include "spec/text/text_input.h"

namespace lockstep {

class TemplateReader {
 public:
  TemplateReader(std::vector<TemplateToken> tokens, const std::string& where)
      : tokens_(std::move(tokens)), where_(where) {}

 protected:
  using Kind = TemplateToken::Kind;

  const TemplateToken& here(std::size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  TemplateToken take() { return tokens_[at_ < tokens_.size() - 1 ? at_++ : at_]; }
  bool is(Kind kind, std::string_view text) const { return here().kind == kind && here().text == text; }
  bool sign(std::string_view text) const { return is(Kind::sign, text); }
  bool word(std::string_view text) const { return is(Kind::name, text); }
  bool take_sign(std::string_view text) { return sign(text) && (take(), true); }
  bool take_word(std::string_view text) { return word(text) && (take(), true); }
  void expect_sign(std::string_view text) {
    if (!take_sign(text)) fail(fmt::format("expected '{}', not {}", text, seen()));
  }
  std::string expect_name() {
    if (here().kind != Kind::name) fail(fmt::format("expected a name, not {}", seen()));
    return take().text;
  }
  void end_tag() {
    if (here().kind != Kind::tag_end) fail(fmt::format("expected '%}}', not {}", seen()));
    take();
  }
  std::string seen() const {
    switch (here().kind) {
      case Kind::end:
        return "the end of the template";
      case Kind::print_end:
        return "'}}'";
      case Kind::tag_end:
        return "'%}'";
      default:
        return quote_text(here().text);
    }
  }
  [[noreturn]] void fail(const std::string& problem, const char* remedy = kMendTemplate) const {
    refuse_template(where_, here().line, problem, remedy);
  }
  void give_back() { --at_; }

 private:
  std::vector<TemplateToken> tokens_;
  const std::string& where_;
  std::size_t at_ = 0;
};

}  // namespace lockstep
