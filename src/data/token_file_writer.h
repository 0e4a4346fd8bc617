// Writes a token file (docs/formats.md, "Token files") document by document, whole or not at all.
//
//   TokenFileWriter writer("corpus.tokens", tokenizer_vocabulary);
//   for (each document) writer.add(ids);
//   writer.finish();
//
// The ids are stored as they come: an end of document, where one is wanted, is the caller's to add. Tokens are as wide
// as the vocabulary needs. The bytes go to `path` + ".partial"; finish() syncs it, renames it to `path` and syncs the
// folder, so a reader of `path` sees the old file or the new one, never half of one. Without finish() nothing appears.
//
// Memory: a buffer of 1 MiB and eight bytes per document. One thread at a time; two writers never on one path.
//
// Failure: EnvironmentError with the call that failed and what the system said (a full disk, a missing folder); the
// writer can then only be destroyed, which removes the partial file, as it does when finish() is never called. A file
// already at `path` stays as it was. ProgramError for an id outside the vocabulary.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/checksum.h"
#include "data/token_file_header.h"

namespace lockstep {

class TokenFileWriter {
 public:
  TokenFileWriter(std::filesystem::path path, std::int64_t vocabulary);  // vocabulary in [1, 2^31]
  ~TokenFileWriter();
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;

  void add(std::span<const std::int32_t> document);  // one without tokens is passed over: it is not a document
  void finish();                                     // once, and last

 private:
  void append(std::span<const std::byte> bytes);
  void flush();

  std::filesystem::path path_, partial_;
  int fd_ = -1;
  TokenFileHeader header_;
  std::vector<std::uint64_t> starts_;
  std::vector<std::byte> buffer_;
  std::int64_t written_ = kTokenFileHeaderBytes;  // where the buffer goes
  Checksum payload_;
};

}  // namespace lockstep
