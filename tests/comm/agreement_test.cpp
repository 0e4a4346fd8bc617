// Ranks find out what they do not have alike: the first name that differs, its values, and who has them.
#include "comm/agreement.h"

#include <gmock/gmock.h>

#include "comm/gather_texts.h"
#include "comm/ranks.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

// What each rank is told, all of them the same, and how many texts each has sent.
struct Told {
  std::string words;  // "": they agree
  int exchanges = 0;
};

Told told(const std::vector<NamedValues>& lists) {
  const auto ranks = static_cast<int>(lists.size());
  std::vector<std::string> words(lists.size());
  std::vector<int> exchanges(lists.size());
  each_rank(ranks, [&](Communicator& comm) {
    const auto here = static_cast<std::size_t>(comm.rank());
    words[here] = find_disagreement(lists[here], [&](const std::string& mine) {
                    ++exchanges[here];
                    return gather_texts(comm, mine);
                  }).value_or("");
  });
  for (const std::string& other : words) EXPECT_EQ(other, words[0]);
  for (const int count : exchanges) EXPECT_EQ(count, exchanges[0]);
  return {words[0], exchanges[0]};
}

const NamedValues kUsual = {{"model.layers", "2"}, {"optim.lr", "0.001"}, {"train.seed", "0"}};

std::vector<NamedValues> all_but_one(int ranks, int odd, const NamedValues& its) {
  std::vector<NamedValues> lists(static_cast<std::size_t>(ranks), kUsual);
  lists[static_cast<std::size_t>(odd)] = its;
  return lists;
}

TEST(GatherTexts, BringsAnyBytesOfAnyLengthToAllRanks) {
  for (const int ranks : {1, 3, 5}) {
    std::vector<std::string> want;
    for (int rank = 0; rank < ranks; ++rank) want.emplace_back(static_cast<std::size_t>(rank * 7), '\0');
    want.back() += std::string("\n\0'", 3);
    each_rank(ranks, [&](Communicator& comm) {
      EXPECT_EQ(gather_texts(comm, want[static_cast<std::size_t>(comm.rank())]), want);
      EXPECT_EQ(gather_texts(comm, ""), std::vector<std::string>(static_cast<std::size_t>(ranks)));
    });
  }
}

TEST(Agreement, OfAllIsAskedWithOneChecksum) {
  for (const int ranks : {1, 2, 5}) {
    const Told same = told(std::vector<NamedValues>(static_cast<std::size_t>(ranks), kUsual));
    EXPECT_EQ(same.words, "");
    EXPECT_EQ(same.exchanges, 1) << "the lists travelled though they are the same";
  }
}

TEST(Agreement, TheOddOneIsNamedWhicheverItIs) {
  NamedValues odd = kUsual;
  odd[1].second = "0.5";
  const char* const others[] = {"ranks 1-4", "ranks 0, 2-4", "ranks 0-1, 3-4", "ranks 0-2, 4", "ranks 0-3"};
  for (int rank = 0; rank < 5; ++rank)
    EXPECT_EQ(told(all_but_one(5, rank, odd)).words,
              fmt::format("rank {} has optim.lr = 0.5, {} have 0.001", rank, others[rank]));
  EXPECT_EQ(told({kUsual, odd}).words, "rank 1 has optim.lr = 0.5, rank 0 has 0.001");
}

// One character is enough, wherever it is.
TEST(Agreement, EveryByteOfAListCounts) {
  for (std::size_t i = 0; i < kUsual.size(); ++i)
    for (const bool value : {false, true}) {
      std::string text = value ? kUsual[i].second : kUsual[i].first;
      for (char& c : text) {
        const char before = std::exchange(c, static_cast<char>(c ^ 1));
        NamedValues odd = kUsual;
        (value ? odd[i].second : odd[i].first) = text;
        EXPECT_THAT(told(all_but_one(3, 2, odd)).words, HasSubstr(kUsual[i].first)) << text;
        c = before;
      }
    }
}

TEST(Agreement, TheFirstOfSeveralIsNamedAndTheOthersAreCounted) {
  NamedValues odd = kUsual;
  odd[1].second = "0.5";
  odd[2].second = "7";
  EXPECT_EQ(told({kUsual, kUsual, odd}).words, "rank 2 has optim.lr = 0.5, ranks 0-1 have 0.001 (1 more differs)");
}

TEST(Agreement, WhatARankDoesNotHaveIsNotSetThere) {
  NamedValues fewer = kUsual;
  fewer.erase(fewer.begin());
  EXPECT_EQ(told({kUsual, fewer, kUsual}).words, "rank 1 has model.layers = (not set), ranks 0, 2 have 2");
  EXPECT_EQ(told({fewer, kUsual, fewer}).words, "rank 1 has model.layers = 2, ranks 0, 2 have (not set)");
}

TEST(Agreement, OfManyValuesSomeAreShown) {
  std::vector<NamedValues> lists;
  for (const char* value : {"a", "b", "c", "d", "e", "f"}) lists.push_back({{"key", value}});
  const std::string words = told(lists).words;
  EXPECT_THAT(words, HasSubstr("rank 5 has key = f, rank 4 has e, rank 3 has d, rank 2 has c, and 2 other values"));
  const std::string longest(500, 'x');
  EXPECT_LT(told({{{"key", longest}}, {{"key", longest + "y"}}}).words.size(), 300u);
}

// A control plane takes 64 KiB at a time.
TEST(Agreement, ADifferenceBeyondWhatTravelsIsStillOne) {
  NamedValues many;
  for (int i = 0; i < 10'000; ++i) many.emplace_back(fmt::format("key {}", i), "value");
  NamedValues odd = many;
  odd.back().second = "other";
  EXPECT_THAT(told({many, odd, many}).words, HasSubstr("rank 1 has a checksum of all settings = "));
}

}  // namespace
}  // namespace lockstep::tests
