// The tokens of words seen before. Most words of a text are among a few thousand, so most are looked up here and never
// merged.
//
// A table of fixed size (2 MiB): a word has one place, where the last word that hashes to it stays. Words of more than
// 30 bytes or 8 tokens are not kept. One thread at a time.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep {

class WordCache {
 public:
  static constexpr std::size_t kLongestWord = 30;

  struct Entry {
    std::uint8_t bytes = 0;  // 0: empty
    std::uint8_t count = 0;
    char word[kLongestWord] = {};
    std::array<std::int32_t, 8> ids{};
  };
  static_assert(sizeof(Entry) == 64);  // a cache line

  // The place of a word of at most kLongestWord bytes, whose hash_of() is given; holds() says whether it is there.
  Entry& place(std::uint64_t hash) { return entries_[hash & (kPlaces - 1)]; }
  static bool holds(const Entry& entry, std::string_view word) {
    return entry.bytes == word.size() && std::memcmp(entry.word, word.data(), word.size()) == 0;
  }
  static void keep(Entry& entry, std::string_view word, std::span<const std::int32_t> ids) {
    if (ids.size() > entry.ids.size()) return;
    entry.bytes = static_cast<std::uint8_t>(word.size());
    entry.count = static_cast<std::uint8_t>(ids.size());
    std::memcpy(entry.word, word.data(), word.size());
    std::copy(ids.begin(), ids.end(), entry.ids.begin());
  }

 private:
  static constexpr std::size_t kPlaces = 1 << 15;

  std::vector<Entry> entries_ = std::vector<Entry>(kPlaces);
};

}  // namespace lockstep
