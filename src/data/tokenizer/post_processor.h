// The post-processor of a tokenizer.json: the special tokens that a template puts around a text.
//
// TemplateProcessing (its template for one text), ByteLevel (which changes no token), and Sequence of these with one
// template at most. Others are refused by name.
// Threads: immutable. Failure: UserError (bad_input_file), one line.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "data/tokenizer/tokenizer_json.h"

namespace lockstep {

class PostProcessor {
 public:
  explicit PostProcessor(const TokenizerNode& document);  // its "post_processor", if there is one

  // Calls text() where the text's own tokens go and token(id) for each other, in order.
  template <class Text, class Token>
  void apply(Text&& text, Token&& token) const {
    if (!template_) return text();
    for (const std::int32_t id : *template_) id == kText ? text() : token(id);
  }

  std::int32_t end() const { return end_; }  // the largest id of a template and one

 private:
  static constexpr std::int32_t kText = -1;

  void read(const TokenizerNode& node);
  void read_template(const TokenizerNode& node);

  std::optional<std::vector<std::int32_t>> template_;
  std::int32_t end_ = 0;
};

}  // namespace lockstep
