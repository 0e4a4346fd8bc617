// The first 64 bytes of a token file: what they say, written and read (docs/formats.md, "Token files").
//
// Parsing checks everything that can be known from the header and the file's size: after it, all sections are inside
// the file and every count fits. It reads 64 bytes and the padding between the sections, so its cost does not grow with
// the file.
//
// Failure: UserError (bad_input_file), one line with the file, what is wrong and a remedy.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr std::string_view kTokenFileMagic = "LSTOKENS";  // the first bytes of every token file
inline constexpr std::uint32_t kTokenFileVersion = 1;            // of files all of whose tokens are targets
inline constexpr std::uint32_t kMarkedTokenVersion = 2;          // of those that say which are
inline constexpr std::int64_t kTokenFileAlignment = 64;          // of every section
inline constexpr std::int64_t kTokenFileHeaderBytes = 64;

struct TokenFileHeader {
  std::int64_t width = 0;  // bytes per token: 1, 2 or 4
  std::int64_t vocabulary = 0;
  std::int64_t tokens = 0;
  std::int64_t documents = 0;
  std::uint64_t payload_checksum = 0;  // of all bytes after the header
  std::int64_t targets = 0;            // tokens that are marked as targets; 0: there are no marks, and all are

  bool marked() const { return targets > 0; }
  std::int64_t tokens_at() const { return kTokenFileHeaderBytes; }
  std::int64_t index_at() const;    // the document index: a 64-bit start for each document
  std::int64_t marks_at() const;    // of a marked file: a bit for each token
  std::int64_t file_bytes() const;  // exactly
};

// The narrowest width that holds every id; vocabulary in [1, 2^31].
std::int64_t token_width(std::int64_t vocabulary);

std::array<std::byte, kTokenFileHeaderBytes> encode(const TokenFileHeader& header);

// `file`: all bytes of the file; `name`: what messages call it.
TokenFileHeader parse_token_file_header(std::span<const std::byte> file, const std::string& name);

}  // namespace lockstep
