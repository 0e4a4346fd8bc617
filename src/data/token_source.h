// A long row of tokens, wherever it is kept: in memory (text_source.h) or in a file (token_file.h).
//
// Threads: after construction every member may be called from any thread at once.
#pragma once
#include <cstdint>
#include <functional>
#include <span>

namespace lockstep {

class TokenSource {
 public:
  TokenSource() = default;
  TokenSource(const TokenSource&) = delete;
  TokenSource& operator=(const TokenSource&) = delete;
  virtual ~TokenSource() = default;

  virtual std::int64_t tokens() const = 0;
  virtual std::int64_t vocabulary() const = 0;  // every id read is in [0, vocabulary)

  // Tokens first, first + 1, … into `to`. ProgramError when some of them are not in [0, tokens()); UserError
  // (bad_input_file) when the source turns out to be damaged there.
  virtual void read(std::int64_t first, std::span<std::int32_t> to) const = 0;

  // The same tokens as targets: kNoTarget (dataset.h) for those that do not count in the loss. Where marks_targets() is
  // false all count.
  virtual void read_targets(std::int64_t first, std::span<std::int32_t> to) const { read(first, to); }
  virtual bool marks_targets() const { return false; }
  // How many of the tokens [first, first + count) count.
  virtual std::int64_t count_targets(std::int64_t, std::int64_t count) const { return count; }

  // Visits the tokens [first, first + count) of every document, in order: together they are all tokens, and a token
  // that ends a document is its last. false, and no visit: where documents end is not known here.
  using VisitDocument = std::function<void(std::int64_t first, std::int64_t count)>;
  virtual bool each_document(const VisitDocument&) const { return false; }

  // The content's identity: a run that resumes compares it with what it started on. Two kinds of source may give the
  // same tokens different fingerprints; one kind gives equal tokens equal ones, on every machine.
  virtual std::uint64_t fingerprint() const = 0;
};

}  // namespace lockstep
