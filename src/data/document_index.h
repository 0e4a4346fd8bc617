// Which pieces of which documents make each sample: made once from a token source (document_index_builder.h), then a
// file that is mapped, or bytes in memory (docs/formats.md, "Document indexes").
//
// Opening checks everything: the checksums, what the index is of, and every piece. It costs one pass over the index,
// which has 12 bytes per piece and 8 per sample.
//
// Threads: after construction every member may be called from any thread at once. The file must not be shortened while
// it is mapped (base/mapped_file.h).
// Failure: UserError (bad_input_file), one line with the file, what is wrong and a remedy.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "spec/model/document_pairs.h"

namespace lockstep {

inline constexpr std::int64_t kDocumentIndexHeaderBytes = 128;

// The first bytes, and the order of what follows: the first piece of each sample and one more (u64), the first token of
// each piece (u64), its length (u32; the top bit: the document continues).
struct DocumentIndexHeader {
  std::uint64_t identity = 0;  // of the source and the settings
  std::int64_t T = 0, source_tokens = 0, training_samples = 0, evaluation_samples = 0, pieces = 0;
  std::int64_t truncated = 0;  // tokens of the source that are in no sample
  std::uint64_t payload_checksum = 0;
  std::int64_t shortened = 0;  // documents of which only the beginning is in a sample
  std::int64_t left_out = 0;   // documents of which nothing is, since no target that is marked would be

  std::int64_t samples() const { return training_samples + evaluation_samples; }
  std::int64_t firsts_at() const { return kDocumentIndexHeaderBytes; }
  std::int64_t tokens_at() const { return firsts_at() + (samples() + 1) * 8; }
  std::int64_t lengths_at() const { return tokens_at() + pieces * 8; }
  std::int64_t file_bytes() const { return lengths_at() + pieces * 4; }
};
inline constexpr std::uint32_t kPieceContinues = std::uint32_t{1} << 31;

std::array<std::byte, kDocumentIndexHeaderBytes> encode(const DocumentIndexHeader& header);
// `file`: all bytes of the file; `name`: what messages call it.
DocumentIndexHeader parse_document_index_header(std::span<const std::byte> file, const std::string& name);

class DocumentIndex {
 public:
  // What it must be of: another source's is refused.
  struct Expected {
    std::uint64_t identity;
    std::int64_t T, source_tokens;
  };
  DocumentIndex(std::unique_ptr<MappedFile> file, std::string name, const Expected& expected);
  DocumentIndex(std::vector<std::byte> bytes, std::string name, const Expected& expected);

  std::int64_t T() const { return header_.T; }
  std::int64_t samples() const { return header_.samples(); }
  std::int64_t training_samples() const { return header_.training_samples; }  // the first; then those for evaluation
  std::int64_t evaluation_samples() const { return header_.evaluation_samples; }
  std::int64_t tokens() const { return tokens_; }  // in all samples
  std::int64_t truncated() const { return header_.truncated; }
  std::int64_t shortened() const { return header_.shortened; }  // documents that were
  std::int64_t left_out() const { return header_.left_out; }    // documents without a target
  double filled() const;                                        // what part of all samples are tokens
  std::int64_t bytes() const { return std::ssize(own_); }       // of memory held
  // Of the samples: the same for the same data and settings.
  std::uint64_t fingerprint() const { return header_.identity ^ header_.payload_checksum; }
  const std::shared_ptr<const DocumentPairs>& documents() const { return pairs_; }  // of training samples

  // A run of one document's tokens. `continues`: the token after it is of the document too.
  struct Piece {
    std::int64_t first, count;
    bool continues;
  };
  std::int64_t pieces(std::int64_t sample) const { return first_piece(sample + 1) - first_piece(sample); }
  Piece piece(std::int64_t sample, std::int64_t i) const { return piece_at(first_piece(sample) + i); }

 private:
  void check(const Expected& expected);
  std::int64_t first_piece(std::int64_t sample) const;
  Piece piece_at(std::int64_t index) const;

  std::vector<std::byte> own_;
  std::unique_ptr<MappedFile> map_;
  std::span<const std::byte> bytes_;
  std::string name_;
  DocumentIndexHeader header_;
  std::int64_t tokens_ = 0;
  std::shared_ptr<const DocumentPairs> pairs_;
};

}  // namespace lockstep
