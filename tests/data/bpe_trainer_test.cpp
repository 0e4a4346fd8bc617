#include "data/tokenizer/bpe_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "data/tokenizer/tokenizer.h"

namespace lockstep {
namespace {

// The definition and nothing else: all pairs are counted again for every merge.
std::vector<LearnedMerge> learn_slowly(std::vector<CountedWord> words, std::int32_t made, std::int64_t most,
                                       std::int64_t least) {
  std::vector<LearnedMerge> merges;
  for (; std::ssize(merges) < most; ++made) {
    std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> counts;  // lower ids first
    for (const CountedWord& word : words)
      for (std::size_t i = 0; i + 1 < word.symbols.size(); ++i)
        counts[{word.symbols[i], word.symbols[i + 1]}] += word.count;
    LearnedMerge best{0, 0, 0};
    for (const auto& [pair, count] : counts)
      if (count > best.count) best = {pair.first, pair.second, count};
    if (best.count < std::max<std::int64_t>(1, least)) break;
    for (CountedWord& word : words) {
      std::vector<std::int32_t> symbols;
      for (std::size_t i = 0; i < word.symbols.size(); ++i) {
        const bool here =
            i + 1 < word.symbols.size() && word.symbols[i] == best.left && word.symbols[i + 1] == best.right;
        symbols.push_back(here ? made : word.symbols[i]);
        if (here) ++i;
      }
      word.symbols = symbols;
    }
    merges.push_back(best);
  }
  return merges;
}

std::string random_corpus(std::uint32_t seed) {
  std::mt19937 random(seed);
  static const char* const kWords[] = {"the",  "rank", "ranks", "gather", "aaaa",  "aaaaa", "é",     "学生",  "reduce",
                                       "abab", "  ",   "\n\n",  "1999",   "don't", "zero",  "zeros", "banana"};
  std::string text;
  for (int i = 0; i < 400; ++i) {
    text += kWords[random() % std::size(kWords)];
    text += random() % 5 == 0 ? "" : " ";
  }
  return text;
}

TEST(BpeTrainer, LearnsTheMergesOfASlowReference) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    WordCounts words;
    words.add(random_corpus(seed));
    for (const std::int64_t least : {1, 2, 7}) {
      const auto fast = learn_merges(words.symbols(), 256, 300, least);
      ASSERT_EQ(fast, learn_slowly(words.symbols(), 256, 300, least)) << "seed " << seed << ", least " << least;
      EXPECT_GT(fast.size(), 20u);
    }
  }
}

TEST(BpeTrainer, TheOrderOfDocumentsChangesNothing) {
  WordCounts forward, backward;
  for (std::uint32_t seed = 0; seed < 5; ++seed) forward.add(random_corpus(seed));
  for (std::uint32_t seed = 5; seed-- > 0;) backward.add(random_corpus(seed));
  EXPECT_EQ(learn_merges(forward.symbols(), 256, 200, 2), learn_merges(backward.symbols(), 256, 200, 2));
}

TEST(BpeTrainer, WhatItWritesIsATokenizer) {
  WordCounts words;
  words.add(random_corpus(3));
  const auto merges = learn_merges(words.symbols(), 256, 100, 2);
  const std::vector<std::string> specials = {"<|endoftext|>", "<|pad|>"};
  const Tokenizer tokenizer(byte_level_tokenizer_json(merges, specials), "learned");
  EXPECT_EQ(tokenizer.vocabulary(), 2 + 256 + std::ssize(merges));
  EXPECT_EQ(tokenizer.id_of("<|pad|>"), 1);
  EXPECT_EQ(tokenizer.id_of("!"), 2);  // the first letter of the byte alphabet
  const std::string text = random_corpus(9) + "<|endoftext|>\xF0\x9F\x98\x80";
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, Specials::add), Specials::add), text);
  EXPECT_LT(tokenizer.encode(" the ranks gather", Specials::add).size(), 6u);
}

TEST(BpeTrainer, ASpecialTokenMayBeWhatAMergeGives) {
  WordCounts words;
  words.add("the the the");
  const auto merges = learn_merges(words.symbols(), 256, 10, 2);
  const std::vector<std::string> specials = {"the", "a"};
  const Tokenizer tokenizer(byte_level_tokenizer_json(merges, specials), "learned");
  EXPECT_THAT(tokenizer.encode("the", Specials::add), testing::ElementsAre(0));
}

TEST(BpeTrainer, ACorpusOfMoreWordsThanItKeepsLosesTheRarest) {
  WordCounts words(3);
  words.add("often often often twice twice once");  // "often" and " often" are two
  EXPECT_GT(words.dropped(), 0);
  bool kept = false;
  for (const CountedWord& word : words.symbols()) kept = kept || word.symbols.size() == 6;
  EXPECT_TRUE(kept);
}

}  // namespace
}  // namespace lockstep
