#include "data/tokenized_text.h"

#include <algorithm>

#include "base/checksum.h"
#include "base/error.h"
#include "data/text_source.h"

namespace lockstep {

DocumentEncoder::DocumentEncoder(const std::filesystem::path& folder)
    : tokenizer_(std::make_shared<const Tokenizer>(Tokenizer::load(folder))),
      end_(end_of_document(*tokenizer_, folder)) {}

std::span<const std::int32_t> DocumentEncoder::encode(std::string_view text) {
  ids_.clear();
  tokenizer_->encode(text, Specials::add, ids_, scratch_);
  if (ids_.empty() || ids_.back() != end_) ids_.push_back(end_);  // some templates add it
  return ids_;
}

TokenizedText::TokenizedText(std::span<const std::string> paths, const std::filesystem::path& tokenizer) {
  if (const std::uintmax_t bytes = text_bytes_of(paths); bytes > kMostTextEncodedAtStart)
    throw UserError(ExitCode::does_not_fit,
                    fmt::format("{}: {} bytes are too much text to encode whenever a run starts", paths[0], bytes),
                    "write a token file with `lockstep tokenize --tokenizer` and use data.tokens");
  DocumentEncoder encoder(tokenizer);
  vocabulary_ = encoder.tokenizer().vocabulary();
  each_text_document(paths, [&](const std::filesystem::path&, std::string_view text) {
    const std::span<const std::int32_t> ids = encoder.encode(text);
    tokens_.insert(tokens_.end(), ids.begin(), ids.end());
    ends_.push_back(tokens());
  });
  tokens_.shrink_to_fit();
  fingerprint_ = checksum(std::as_bytes(std::span(tokens_)));
}

bool TokenizedText::each_document(const VisitDocument& visit) const {
  std::int64_t first = 0;
  for (const std::int64_t end : ends_) {
    visit(first, end - first);
    first = end;
  }
  return true;
}

void TokenizedText::read(std::int64_t first, std::span<std::int32_t> to) const {
  const auto count = static_cast<std::int64_t>(to.size());
  LOCKSTEP_CHECK(first >= 0 && first <= tokens() && count <= tokens() - first, "{} tokens from {} on, of {}", count,
                 first, tokens());
  std::copy_n(tokens_.begin() + first, count, to.begin());
}

}  // namespace lockstep
