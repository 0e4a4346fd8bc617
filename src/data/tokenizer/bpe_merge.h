// Byte-pair encoding of one word: of all neighbours that the table can merge, the pair of the lowest rank is merged,
// the leftmost of equal ones, until none is left.
//
// A short word is searched for its lowest rank after every merge, which beats any structure. A long one (a document
// without spaces) keeps its symbols in a linked list and its pairs in a heap: n log n.
#pragma once
#include <cstdint>
#include <vector>

#include "data/tokenizer/token_table.h"

namespace lockstep {

struct BpeScratch {
  std::vector<std::int32_t> symbols;
  // Of long words, by position:
  std::vector<std::uint32_t> ranks, before, after;
  std::vector<std::uint64_t> heap;  // rank, then position
};

// Merges scratch.symbols in place: afterwards it holds the word's tokens. At most 2^31 symbols.
void merge_symbols(const MergeTable& merges, BpeScratch& scratch);

}  // namespace lockstep
