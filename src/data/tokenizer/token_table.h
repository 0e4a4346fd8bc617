// The tables of a vocabulary: texts of tokens by id, ids by text, and merges by pair. Built once, then read by any
// thread.
//
// Both hash tables are open-addressed and at most half full: a look-up of a pair touches one cache line as a rule, and
// building one allocates once.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Mixes bytes into 64 bits; for tables in memory alone, since nothing depends on its values.
inline std::uint64_t hash_of(std::string_view bytes) {
  constexpr std::uint64_t kMix = 0x9E3779B97F4A7C15u;
  std::uint64_t hash = bytes.size() * kMix;
  const char* at = bytes.data();
  std::size_t left = bytes.size();
  const auto mix = [&](std::uint64_t word) {
    hash = (hash ^ word) * kMix;
    hash ^= hash >> 32;
  };
  for (; left >= 8; at += 8, left -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    mix(word);
  }
  if (left > 0) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, left);
    mix(word);
  }
  return hash;
}

class TokenTable {
 public:
  static constexpr std::int32_t kAbsent = -1;

  void reserve(std::size_t tokens);  // before the first add
  // False when the text or the id is taken.
  bool add(std::string_view text, std::int32_t id);

  std::int32_t id_of(std::string_view text) const;  // or kAbsent
  bool has(std::int32_t id) const {
    return id >= 0 && static_cast<std::size_t>(id) < places_.size() && places_[static_cast<std::size_t>(id)].begin >= 0;
  }
  std::string_view text_of(std::int32_t id) const {  // has(id)
    const Place& place = places_[static_cast<std::size_t>(id)];
    return std::string_view(texts_).substr(static_cast<std::size_t>(place.begin), place.bytes);
  }
  std::int32_t size() const { return count_; }                                    // tokens
  std::int32_t end() const { return static_cast<std::int32_t>(places_.size()); }  // the largest id and one

 private:
  struct Place {
    std::int64_t begin = -1;
    std::uint32_t bytes = 0;
  };

  std::string texts_;
  std::vector<Place> places_;        // by id
  std::vector<std::int32_t> slots_;  // ids by the text's hash
  std::int32_t count_ = 0;
};

inline constexpr std::uint32_t kNoMerge = 0xFFFFFFFFu;

class MergeTable {
 public:
  struct Entry {
    std::uint64_t pair;
    std::uint32_t rank;  // kNoMerge: an empty slot
    std::int32_t merged;
  };

  void reserve(std::size_t merges);
  void set(std::int32_t left, std::int32_t right, std::uint32_t rank, std::int32_t merged);  // replaces an older one

  const Entry& find(std::int32_t left, std::int32_t right) const {  // rank kNoMerge when there is none
    const std::uint64_t pair = key_of(left, right);
    for (std::size_t at = start_of(pair);; at = (at + 1) & mask_) {
      const Entry& entry = slots_[at];
      if (entry.rank == kNoMerge || entry.pair == pair) return entry;
    }
  }

 private:
  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t start_of(std::uint64_t pair) const {
    const std::uint64_t hash = pair * 0x9E3779B97F4A7C15u;
    return (hash ^ hash >> 29) & mask_;
  }

  std::vector<Entry> slots_ = {{0, kNoMerge, 0}};
  std::size_t mask_ = 0;
};

}  // namespace lockstep
