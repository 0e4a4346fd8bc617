#include "data/tokenizer/bpe_merge.h"

#include <algorithm>
#include <functional>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr std::size_t kShortWord = 48;

void merge_short(const MergeTable& merges, std::vector<std::int32_t>& symbols) {
  std::uint32_t ranks[kShortWord];
  std::int32_t* const ids = symbols.data();
  std::size_t count = symbols.size();
  for (std::size_t i = 0; i + 1 < count; ++i) ranks[i] = merges.find(ids[i], ids[i + 1]).rank;
  while (count > 1) {
    const std::uint32_t* const lowest = std::min_element(ranks, ranks + count - 1);
    if (*lowest == kNoMerge) break;
    const auto at = static_cast<std::size_t>(lowest - ranks);
    ids[at] = merges.find(ids[at], ids[at + 1]).merged;
    std::copy(ids + at + 2, ids + count, ids + at + 1);
    if (at + 2 < count) std::copy(ranks + at + 2, ranks + count - 1, ranks + at + 1);
    --count;
    if (at > 0) ranks[at - 1] = merges.find(ids[at - 1], ids[at]).rank;
    if (at + 1 < count) ranks[at] = merges.find(ids[at], ids[at + 1]).rank;
  }
  symbols.resize(count);
}

constexpr std::uint32_t kNobody = 0xFFFFFFFFu;

void merge_long(const MergeTable& merges, BpeScratch& s) {
  const std::size_t count = s.symbols.size();
  LOCKSTEP_CHECK(count < (std::size_t{1} << 31), "a word of {} symbols", count);
  s.ranks.assign(count, kNoMerge);
  s.before.resize(count);
  s.after.resize(count);
  s.heap.clear();
  const auto rank_at = [&](std::size_t at) {  // of the pair that begins there, which is then in the heap
    const std::uint32_t next = s.after[at];
    s.ranks[at] = next == kNobody ? kNoMerge : merges.find(s.symbols[at], s.symbols[next]).rank;
    return s.ranks[at] != kNoMerge;
  };
  const auto entry_at = [&](std::size_t at) { return std::uint64_t{s.ranks[at]} << 32 | at; };
  for (std::size_t i = 0; i < count; ++i) {
    s.before[i] = i == 0 ? kNobody : static_cast<std::uint32_t>(i - 1);
    s.after[i] = i + 1 == count ? kNobody : static_cast<std::uint32_t>(i + 1);
    if (rank_at(i)) s.heap.push_back(entry_at(i));
  }
  std::make_heap(s.heap.begin(), s.heap.end(), std::greater<>());
  const auto push = [&](std::size_t at) {
    s.heap.push_back(entry_at(at));
    std::push_heap(s.heap.begin(), s.heap.end(), std::greater<>());
  };
  while (!s.heap.empty()) {
    std::pop_heap(s.heap.begin(), s.heap.end(), std::greater<>());
    const std::uint64_t entry = s.heap.back();
    s.heap.pop_back();
    const auto at = static_cast<std::size_t>(entry & 0xFFFFFFFFu);
    // A pair that changed since has another rank: ranks belong to one pair each.
    if (s.ranks[at] != static_cast<std::uint32_t>(entry >> 32)) continue;
    const std::uint32_t gone = s.after[at];
    s.symbols[at] = merges.find(s.symbols[at], s.symbols[gone]).merged;
    s.ranks[gone] = kNoMerge;
    s.symbols[gone] = -1;
    s.after[at] = s.after[gone];
    if (s.after[at] != kNobody) s.before[s.after[at]] = static_cast<std::uint32_t>(at);
    if (rank_at(at)) push(at);
    if (s.before[at] != kNobody && rank_at(s.before[at])) push(s.before[at]);
  }
  std::erase(s.symbols, -1);
}

}  // namespace

void merge_symbols(const MergeTable& merges, BpeScratch& scratch) {
  if (scratch.symbols.size() <= kShortWord)
    merge_short(merges, scratch.symbols);
  else
    merge_long(merges, scratch);
}

}  // namespace lockstep
