// Text files as tokens of a tokenizer.json, in memory: each file is one document, with what the tokenizer's template
// adds, followed by the token that ends a document.
//
// Files and folders are read in TextSource's order (text_source.h). The text is encoded when the run starts, in about a
// second for 30 MB; more than kMostTextEncodedAtStart is for `lockstep tokenize`, which writes a token file once.
//
// Memory: four bytes per token. Failure: as TextSource and Tokenizer; UserError (does_not_fit) for more text than that.
#pragma once
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/token_source.h"
#include "data/tokenizer/tokenizer.h"

namespace lockstep {

inline constexpr std::uintmax_t kMostTextEncodedAtStart = std::uintmax_t{1} << 30;

// Encodes documents one after another, each with its end.
class DocumentEncoder {
 public:
  explicit DocumentEncoder(const std::filesystem::path& folder);  // with a tokenizer.json
  // Of a tokenizer that several share.
  DocumentEncoder(std::shared_ptr<const Tokenizer> tokenizer, std::int32_t end)
      : tokenizer_(std::move(tokenizer)), end_(end) {}

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  std::int32_t end() const { return end_; }
  // The document's tokens; valid until the next call.
  std::span<const std::int32_t> encode(std::string_view text);

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::int32_t end_;
  TokenizerScratch scratch_;
  std::vector<std::int32_t> ids_;
};

class TokenizedText final : public TokenSource {
 public:
  TokenizedText(std::span<const std::string> paths, const std::filesystem::path& tokenizer);  // at least one path

  std::int64_t tokens() const override { return std::ssize(tokens_); }
  std::int64_t vocabulary() const override { return vocabulary_; }
  void read(std::int64_t first, std::span<std::int32_t> to) const override;
  bool each_document(const VisitDocument& visit) const override;  // each file
  std::uint64_t fingerprint() const override { return fingerprint_; }
  std::int64_t documents() const { return std::ssize(ends_); }
  std::int64_t bytes() const { return static_cast<std::int64_t>(tokens_.capacity() * sizeof(std::int32_t)); }

 private:
  std::vector<std::int32_t> tokens_;
  std::vector<std::int64_t> ends_;  // of documents
  std::int64_t vocabulary_ = 0;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace lockstep
