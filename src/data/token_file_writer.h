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
// With Marks::yes each token is a target or is not (add() with `targets`), and at least one of all must be. The marks
// go to `path` + ".partial-targets" until the end.
//
// The index goes to `path` + ".partial-index" until then. What sync() has returned can be continued after the process
// was killed: a writer made with it begins where that one was, and writes the same file in the end.
//
// Memory: two buffers of 1 MiB. One thread at a time; two writers never on one path.
//
// Failure: EnvironmentError with the call that failed and what the system said (a full disk, a missing folder); the
// writer can then only be destroyed, which removes the partial files, as it does when finish() is never called, unless
// keep() was. A file already at `path` stays as it was. UserError (bad_input_file) when there is less to continue than
// is said. ProgramError for an id outside the vocabulary.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/checksum.h"
#include "data/token_file_header.h"

namespace lockstep {

// What a writer has on the disk.
struct WrittenTokens {
  std::int64_t tokens = 0;
  std::int64_t documents = 0;
  std::int64_t targets = 0;  // that are marked
};

// Whether a token file says which of its tokens are targets; else all are.
enum class Marks { no, yes };

class TokenFileWriter {
 public:
  // vocabulary in [1, 2^31]
  TokenFileWriter(std::filesystem::path path, std::int64_t vocabulary, Marks marks = Marks::no);
  TokenFileWriter(std::filesystem::path path, std::int64_t vocabulary, const WrittenTokens& before,
                  Marks marks = Marks::no);
  ~TokenFileWriter();
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;

  void add(std::span<const std::int32_t> document);  // one without tokens is passed over: it is not a document
  // The same of a file with marks: other than 0 where the document's token of this place is a target.
  void add(std::span<const std::int32_t> document, std::span<const std::uint8_t> targets);
  void finish();  // once, and last

  WrittenTokens written() const {
    return {.tokens = header_.tokens, .documents = header_.documents, .targets = header_.targets};
  }
  WrittenTokens sync();          // all of it reaches the disk
  void keep() { keep_ = true; }  // leave the partial files when this goes

  // What a writer of this path leaves when it is killed or keeps.
  static std::filesystem::path partial_of(const std::filesystem::path& path);
  static std::filesystem::path partial_index_of(const std::filesystem::path& path);
  static std::filesystem::path partial_marks_of(const std::filesystem::path& path);

 private:
  // A file that is appended to through a buffer.
  struct Appended {
    std::filesystem::path path;
    int fd = -1;
    std::int64_t written = 0;  // where the buffer goes
    std::vector<std::byte> buffer = {};
  };
  void open(bool anew);
  std::span<Appended* const> files() const { return std::span(files_).first(marks_ == Marks::yes ? 3 : 2); }
  void take_up_marks();
  void mark(std::span<const std::uint8_t> targets);
  void write_document(std::span<const std::int32_t> document);
  void take_up(Appended& file, std::int64_t bytes) const;
  void append(Appended& file, std::span<const std::byte> bytes);
  void flush(Appended& file);

  std::filesystem::path path_;
  TokenFileHeader header_;
  Appended tokens_, starts_, targets_;
  std::array<Appended*, 3> files_{&tokens_, &starts_, &targets_};
  Marks marks_;
  std::uint8_t bits_ = 0;  // of the last tokens % 8 tokens, which are in no buffer yet
  Checksum payload_;
  bool keep_ = false;
};

}  // namespace lockstep
