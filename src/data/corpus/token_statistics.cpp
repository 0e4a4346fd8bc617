#include "data/corpus/token_statistics.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/checksum.h"
#include "data/tokenizer/tokenizer_json.h"

namespace lockstep {

namespace {

constexpr std::int64_t kCountedAtOnce = 1 << 16;

// Adds tokens one piece after another; a document may come in several.
class Counter {
 public:
  explicit Counter(TokenStatistics& to) : to_(to) {}

  void add(std::span<const std::int32_t> ids) {
    document_.update(std::as_bytes(ids));
    length_ += std::ssize(ids);
    for (const std::int32_t id : ids) {
      const auto at = static_cast<std::size_t>(id);
      if (id >= kMostTokenIds) {
        ++to_.beyond;
        continue;
      }
      if (at >= to_.counts.size()) to_.counts.resize(at + 1);
      ++to_.counts[at];
    }
  }
  void end_document() {
    to_.shortest = to_.documents == 0 ? length_ : std::min(to_.shortest, length_);
    to_.longest = std::max(to_.longest, length_);
    ++to_.documents;
    ++to_.lengths[static_cast<std::size_t>(
        std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(1, length_))) - 1)];
    seen_.emplace_back(document_.value(), length_);
    document_ = Checksum();
    length_ = 0;
  }
  std::int64_t length() const { return length_; }
  void count_repeated() {
    std::ranges::sort(seen_);
    for (std::size_t i = 1; i < seen_.size(); ++i)
      if (seen_[i] == seen_[i - 1]) ++to_.repeated, to_.repeated_tokens += seen_[i].second;
    seen_ = {};
  }

 private:
  TokenStatistics& to_;
  Checksum document_;
  std::int64_t length_ = 0;
  std::vector<std::pair<std::uint64_t, std::int64_t>> seen_;
};

}  // namespace

std::int64_t TokenStatistics::distinct() const {
  return std::ranges::count_if(counts, [](std::int64_t count) { return count > 0; });
}

std::vector<std::int32_t> TokenStatistics::most_frequent(std::size_t count) const {
  std::vector<std::int32_t> ids(counts.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto more = [this](std::int32_t a, std::int32_t b) {
    const auto of = [this](std::int32_t id) { return counts[static_cast<std::size_t>(id)]; };
    return of(a) != of(b) ? of(a) > of(b) : a < b;
  };
  const std::size_t kept = std::min(count, ids.size());
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(kept), ids.end(), more);
  ids.resize(kept);
  std::erase_if(ids, [this](std::int32_t id) { return counts[static_cast<std::size_t>(id)] == 0; });
  return ids;
}

TokenStatistics count_tokens(const DocumentTokens& source, std::optional<std::int32_t> end) {
  TokenStatistics statistics{.tokens = source.tokens()};
  Counter counter(statistics);
  std::vector<std::int32_t> piece(kCountedAtOnce);
  const auto each = [&](std::int64_t from, std::int64_t to, auto use) {
    for (; from < to; from += kCountedAtOnce) {
      const auto ids = std::span(piece).first(static_cast<std::size_t>(std::min(kCountedAtOnce, to - from)));
      source.read(from, ids);
      use(std::span<const std::int32_t>(ids));
    }
  };
  for (std::int64_t i = 0; i < source.documents(); ++i) {
    const auto [from, to] = source.document(i);
    each(from, to, [&](std::span<const std::int32_t> ids) { counter.add(ids); });
    counter.end_document();
  }
  if (source.documents() == 0) {
    each(0, source.tokens(), [&](std::span<const std::int32_t> ids) {
      while (end && !ids.empty()) {
        const auto last = std::ranges::find(ids, *end);
        if (last == ids.end()) break;
        const auto count = static_cast<std::size_t>(last - ids.begin()) + 1;
        counter.add(ids.first(count));
        counter.end_document();
        ids = ids.subspan(count);
      }
      counter.add(ids);
    });
    if (end && counter.length() > 0) counter.end_document();
  }
  counter.count_repeated();
  return statistics;
}

UnknownTokens unknown_tokens(const TokenStatistics& statistics, const Tokenizer& tokenizer) {
  UnknownTokens found{.nothing = statistics.beyond};
  const auto hexadecimal = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
  for (std::size_t i = 0; i < statistics.counts.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    const std::int64_t count = statistics.counts[i];
    const std::optional<std::string_view> text = tokenizer.text_of(id);
    if (!text)
      found.nothing += count;
    else if (tokenizer.model().unknown() == id)
      found.unknown += count;
    else if (text->size() == 6 && text->starts_with("<0x") && text->back() == '>' && hexadecimal((*text)[3]) &&
             hexadecimal((*text)[4]))
      found.bytes += count;
  }
  return found;
}

}  // namespace lockstep
