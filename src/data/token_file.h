// A token file (docs/formats.md, "Token files"), mapped: opening one of any size is immediate.
//
// Opening checks the header against the file's size (token_file_header.h) and the first entry of the document index;
// each token and each document is checked when it is read. Only verify() reads the whole file: it compares the payload
// with its checksum and checks every token and document. So a file is safe to use without verify(), but damage that
// turns one valid id into another is noticed by verify() alone.
//
// The file must not be shortened while it is mapped (base/mapped_file.h).
// Threads: every member may be called from any thread at once.
// Failure: UserError (bad_input_file), one line with the file, the place and a remedy.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/mapped_file.h"
#include "data/document_tokens.h"
#include "data/token_file_header.h"

namespace lockstep {

class TokenFile final : public DocumentTokens {
 public:
  explicit TokenFile(const std::filesystem::path& path);
  // A token file's bytes, wherever they are; they must outlive this object. `name` is what messages call them.
  TokenFile(std::span<const std::byte> bytes, std::string name);

  std::int64_t tokens() const override { return header_.tokens; }
  std::int64_t vocabulary() const override { return header_.vocabulary; }
  void read(std::int64_t first, std::span<std::int32_t> to) const override;
  void read_targets(std::int64_t first, std::span<std::int32_t> to) const override;
  bool marks_targets() const override { return header_.marked(); }
  std::int64_t count_targets(std::int64_t first, std::int64_t count) const override;
  std::uint64_t fingerprint() const override;  // from the header alone: opening is enough

  std::int64_t documents() const override { return header_.documents; }  // 0: the file has no index
  // The tokens [first, second) of a document. ProgramError unless index is in [0, documents()).
  std::pair<std::int64_t, std::int64_t> document(std::int64_t index) const override;

  void verify() const override;
  std::string_view form() const override { return "a token file"; }

  const TokenFileHeader& header() const { return header_; }

 private:
  std::uint64_t start_of(std::int64_t document) const;
  bool is_target(std::int64_t token) const;  // of a marked file

  std::unique_ptr<MappedFile> map_;  // absent when the bytes are someone else's
  std::span<const std::byte> bytes_;
  std::string name_;
  TokenFileHeader header_;
};

}  // namespace lockstep
