// Learns a byte-level BPE: counts the words of a corpus, then merges the most frequent pair of neighbours again and
// again.
//
//   WordCounts words;
//   for (each document) words.add(text);
//   const std::vector<LearnedMerge> merges = learn_merges(words.symbols(), 256, count, {});
//
// Of equally frequent pairs the one with the lower ids is merged, so the result depends on the corpus alone, and on no
// order of its documents. Counts of pairs are kept up to date word by word and the most frequent one is taken from a
// queue, whose entries are checked against the counts when they come up: a merge costs what the words cost that hold
// it.
//
// Memory: the distinct words, at most kMostCountedWords. A corpus with more loses the rarest: those seen once, then
// twice, … (`dropped()` says how often a lost word may have come), and then the order of documents matters too.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tokenizer/pre_tokenizer.h"

namespace lockstep {

inline constexpr std::size_t kMostCountedWords = 8'000'000;

// A word as ids, and how often it came.
struct CountedWord {
  std::vector<std::int32_t> symbols;
  std::int64_t count = 0;
};

// Words of GPT-2's split with their counts. One thread at a time.
class WordCounts {
 public:
  explicit WordCounts(std::size_t most = kMostCountedWords);

  void add(std::string_view text);                   // any bytes; what is not UTF-8 counts as U+FFFD
  std::vector<CountedWord> symbols() const;          // bytes as ids, in the order of the words' bytes
  std::int64_t dropped() const { return dropped_; }  // 0: nothing was lost

 private:
  std::size_t most_;
  std::int64_t dropped_ = 0;
  PreTokenizer splitter_;
  PatternScratch scratch_;
  std::unordered_map<std::string, std::int64_t> counts_;
};

struct LearnedMerge {
  std::int32_t left, right;
  std::int64_t count;  // how often the pair came when it was merged
  bool operator==(const LearnedMerge&) const = default;
};

// The i-th merge makes the id first + i; symbols have ids below `first`. Ends after `most` merges, or when the most
// frequent pair comes fewer than `least` times.
std::vector<LearnedMerge> learn_merges(std::vector<CountedWord> words, std::int32_t first, std::int64_t most,
                                       std::int64_t least);

// A byte-level tokenizer.json as Hugging Face writes it: special tokens first, then the 256 letters of the byte
// alphabet in the order of their code points, then one token per merge. Merges are of bytes as ids 0 to 255
// (WordCounts).
std::string byte_level_tokenizer_json(std::span<const LearnedMerge> merges, std::span<const std::string> specials);

}  // namespace lockstep
