// What a file of tokens holds, counted in one pass: lengths of documents, documents that come again, how often each
// token comes, and bytes that were not understood.
//
// Documents are those of the file's index; without one they end with `end`, where it is given. Two documents are equal
// if the XXH3-64 of their ids is. An id of 4,194,304 or more is counted with all others like it.
//
// Memory: eight bytes per document, and eight per id up to the largest. Failure: as the source's read().
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "data/document_tokens.h"
#include "data/tokenizer/tokenizer.h"

namespace lockstep {

struct TokenStatistics {
  std::int64_t tokens = 0, documents = 0;
  std::int64_t shortest = 0, longest = 0;
  // Documents of 2^i to 2^(i+1) - 1 tokens; those of none are with those of one.
  std::array<std::int64_t, 48> lengths{};
  std::int64_t repeated = 0, repeated_tokens = 0;  // documents that equal an earlier one, and their tokens
  std::vector<std::int64_t> counts = {};           // by id
  std::int64_t beyond = 0;                         // ids that are too large for the list

  std::int64_t distinct() const;  // ids that come at all
  std::vector<std::int32_t> most_frequent(std::size_t count) const;
};

TokenStatistics count_tokens(const DocumentTokens& source, std::optional<std::int32_t> end);

// Tokens that stand for something that the tokenizer has no word for.
struct UnknownTokens {
  std::int64_t unknown = 0;  // its unknown token
  std::int64_t bytes = 0;    // bytes by themselves, <0x00> to <0xFF>
  std::int64_t nothing = 0;  // ids that are no token of it
};
UnknownTokens unknown_tokens(const TokenStatistics& statistics, const Tokenizer& tokenizer);

}  // namespace lockstep
