#include "data/tokenizer/token_table.h"

#include "base/error.h"

namespace lockstep {

void TokenTable::reserve(std::size_t tokens) {
  LOCKSTEP_CHECK(count_ == 0, "a table that holds {} tokens", count_);
  slots_.assign(std::bit_ceil(2 * tokens + 2), kAbsent);
}

bool TokenTable::add(std::string_view text, std::int32_t id) {
  LOCKSTEP_CHECK(2 * static_cast<std::size_t>(count_) + 2 <= slots_.size(), "more than {} tokens", count_);
  if (has(id)) return false;
  std::size_t at = hash_of(text) & (slots_.size() - 1);
  for (; slots_[at] != kAbsent; at = (at + 1) & (slots_.size() - 1))
    if (text_of(slots_[at]) == text) return false;
  slots_[at] = id;
  if (static_cast<std::size_t>(id) >= places_.size()) places_.resize(static_cast<std::size_t>(id) + 1);
  places_[static_cast<std::size_t>(id)] = {static_cast<std::int64_t>(texts_.size()),
                                           static_cast<std::uint32_t>(text.size())};
  texts_ += text;
  ++count_;
  return true;
}

std::int32_t TokenTable::id_of(std::string_view text) const {
  if (slots_.empty()) return kAbsent;
  for (std::size_t at = hash_of(text) & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1))
    if (slots_[at] == kAbsent || text_of(slots_[at]) == text) return slots_[at];
}

void MergeTable::reserve(std::size_t merges) {
  slots_.assign(std::bit_ceil(2 * merges + 2), {0, kNoMerge, 0});
  mask_ = slots_.size() - 1;
}

void MergeTable::set(std::int32_t left, std::int32_t right, std::uint32_t rank, std::int32_t merged) {
  const_cast<Entry&>(find(left, right)) = {key_of(left, right), rank, merged};
}

}  // namespace lockstep
