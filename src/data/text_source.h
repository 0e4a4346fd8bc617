// Text files as tokens (byte_tokenizer.h), in memory: each file is one document followed by kEndOfDocument.
//
// Files and folders are read in the order they are named. A folder is read with all folders below it, its files in the
// byte order of their paths ('/' between the parts), so that the tokens do not depend on the machine. In a folder,
// these are passed over: names that begin with a dot, what is not a regular file (symbolic links are followed), binary
// files (a zero byte in the first 8 KiB) and empty ones. A folder that links lead to again is read once, under its
// first path, so loops do no harm. A file that is named itself is read or refused, never passed over.
//
// Memory: two bytes per token, bytes() in all, taken once. The files are needed only during construction and must not
// be shortened then (base/mapped_file.h).
//
// Failure: UserError (bad_input_file) for a path that is missing, may not be read, holds no text, or is named itself
// and binary or empty; UserError (does_not_fit) when memory ends.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/token_source.h"

namespace lockstep {

class TextSource final : public TokenSource {
 public:
  explicit TextSource(std::span<const std::string> paths);  // at least one
  explicit TextSource(std::string_view text);               // one document, not empty
  // At least one. A kEndOfDocument comes first, and after each document as many, one or more, as make its tokens a
  // multiple of `window`: samples of that length begin with an end and then a document.
  static std::unique_ptr<TextSource> of_documents(std::span<const std::string> documents, std::size_t window);

  std::int64_t tokens() const override { return static_cast<std::int64_t>(tokens_.size()); }
  std::int64_t vocabulary() const override;
  void read(std::int64_t first, std::span<std::int32_t> to) const override;
  bool each_document(const VisitDocument& visit) const override;  // to each kEndOfDocument
  std::uint64_t fingerprint() const override { return fingerprint_; }

  std::int64_t documents() const { return documents_; }
  std::int64_t bytes() const;  // of memory held

 private:
  TextSource() = default;
  void add(std::string_view document);
  void seal();

  std::vector<std::uint16_t> tokens_;
  std::int64_t documents_ = 0;
  std::uint64_t fingerprint_ = 0;
};

// The documents that TextSource reads for these paths, in its order, one after another; at least one, or it throws as
// TextSource does. `visit` gets each file and its text, which lasts for the call. Nothing is held in memory.
void each_text_document(std::span<const std::string> paths,
                        const std::function<void(const std::filesystem::path& file, std::string_view text)>& visit);
// At least the bytes of text that each_text_document() gives.
std::uintmax_t text_bytes_of(std::span<const std::string> paths);

// The files that TextSource reads for this folder, in its order, before it looks at what they hold.
std::vector<std::filesystem::path> text_files_below(const std::filesystem::path& folder);

}  // namespace lockstep
