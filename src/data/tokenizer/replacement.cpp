#include "data/tokenizer/replacement.h"

#include "base/error.h"

namespace lockstep {

TextOrPattern read_text_or_pattern(const TokenizerNode& node) {
  const TokenizerNode pattern = node.at("pattern");
  TextOrPattern read;
  if (pattern.has("String")) {
    pattern.only({"String"});
    read.text = pattern.text("String");
    if (read.text.empty()) pattern.unsupported("an empty text to look for");
  } else {
    pattern.only({"Regex"});
    read.pattern.emplace(pattern.text("Regex"), fmt::format("{}: {}", node.where(), pattern.place()));
  }
  return read;
}

void refuse_growth(const std::string& where) {
  throw UserError(ExitCode::bad_input_file,
                  fmt::format("{}: a text becomes more than {} times as long", where, kMostGrowth),
                  "check that it is the file you meant");
}

Replacement::Replacement(const TokenizerNode& node)
    : content_(node.text("content")), where_(fmt::format("{}: {}", node.where(), node.place())) {
  node.only({"pattern", "content"});
  TextOrPattern read = read_text_or_pattern(node);
  text_ = std::move(read.text);
  pattern_ = std::move(read.pattern);
}

bool Replacement::rare(std::string_view text) const { return !pattern_ && text.find(text_) == std::string_view::npos; }

void Replacement::append(std::string_view text, std::string& out, PatternScratch& scratch, std::size_t most) const {
  std::size_t done = 0;
  const auto replace = [&](std::size_t begin, std::size_t end) {
    if (out.size() + (begin - done) + content_.size() > most) refuse_growth(where_);
    out.append(text, done, begin - done).append(content_);
    done = end;
  };
  if (pattern_) {
    pattern_->each(text, scratch, [&](const PatternMatch& match) { replace(match.begin, match.end); });
  } else {
    for (std::size_t at = 0; (at = text.find(text_, done)) != std::string_view::npos;) replace(at, at + text_.size());
  }
  if (out.size() + (text.size() - done) > most) refuse_growth(where_);
  out.append(text, done, text.size() - done);
}

}  // namespace lockstep
