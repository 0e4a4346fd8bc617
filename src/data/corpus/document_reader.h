// The documents of a corpus one after another, in batches: a file of text is one document, a line of JSON is one.
//
// A batch knows the place after it, so that reading can begin there another day. Lines are not parsed here, and text is
// not checked: that is the work of those who encode (corpus_encoder.h). Empty lines and empty files are passed over,
// and in folders binary files (a zero byte in the first 8 KiB).
//
// Memory: one batch, of about kBatchBytes or of one document of up to `longest` bytes. A longer one is refused, however
// small the compressed file is.
//
// One thread at a time; raw_bytes() from any. Failure: as ByteStream.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "data/corpus/byte_stream.h"
#include "data/corpus/corpus_inputs.h"

namespace lockstep {

struct CorpusPlace {
  std::int64_t input = 0;  // of the list
  std::int64_t bytes = 0;  // of it, decompressed
  std::int64_t lines = 0;
  std::uint64_t read = 0;  // the checksum of these bytes, of standard input
  bool operator==(const CorpusPlace&) const = default;
};

struct RawDocument {
  std::size_t begin = 0, end = 0;    // in the batch's bytes
  std::int64_t input = 0, line = 0;  // line 0: a whole file
};

struct RawBatch {
  std::string bytes;
  std::vector<RawDocument> documents;
  CorpusPlace after;
};

class DocumentReader {
 public:
  static constexpr std::size_t kBatchBytes = 1 << 20;

  // UserError (bad_input_file) when standard input does not begin as it did before `from`.
  DocumentReader(const CorpusInputs& inputs, bool json, std::size_t longest, const CorpusPlace& from);

  std::optional<RawBatch> next();  // none at the end
  std::int64_t raw_bytes() const { return raw_; }

 private:
  bool open();  // the input at place_; false: it is passed over, or there is none
  std::size_t fill(RawBatch& batch, std::size_t room);
  void read_lines(RawBatch& batch);
  void read_text(RawBatch& batch);
  void close();
  void skip(const CorpusPlace& from);
  const CorpusInput& input() const { return inputs_.files[static_cast<std::size_t>(place_.input)]; }
  [[noreturn]] void too_long(std::int64_t line) const;

  const CorpusInputs& inputs_;
  bool json_;
  std::size_t longest_;
  CorpusPlace place_;
  std::unique_ptr<ByteStream> stream_;
  Checksum read_;
  std::string rest_;  // the beginning of a line, whose end was not read yet
  std::int64_t raw_before_ = 0;
  std::atomic<std::int64_t> raw_ = 0;
};

}  // namespace lockstep
