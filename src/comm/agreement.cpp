#include "comm/agreement.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/checksum.h"
#include "comm/gather_texts.h"

namespace lockstep {

namespace {

// Of one list, and of one value in a message. What is cut away from a list is still in its checksum.
constexpr std::size_t kMostText = 60'000, kMostShown = 72, kMostValues = 4;

const char* const kNotSet = "(not set)";

std::string packed(const NamedValues& list) {
  std::string text;
  for (const auto& [name, value] : list) text.append(name).append(1, '\0').append(value).append(1, '\0');
  return text;
}

NamedValues unpacked(const std::string& text) {
  NamedValues list;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t name_ends = text.find('\0', at);
    const std::size_t value_ends = name_ends == std::string::npos ? name_ends : text.find('\0', name_ends + 1);
    if (value_ends == std::string::npos) break;  // cut short
    list.emplace_back(text.substr(at, name_ends - at), text.substr(name_ends + 1, value_ends - name_ends - 1));
    at = value_ends + 1;
  }
  return list;
}

std::string shown(const std::string& value) {
  return value.size() <= kMostShown ? value : value.substr(0, kMostShown - 3) + "...";
}

// Those who have each value.
using Holders = std::vector<std::pair<std::string, std::vector<int>>>;

Holders holders_of(const std::vector<std::map<std::string, std::string>>& lists, const std::string& name) {
  std::map<std::string, std::vector<int>> by_value;
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    const auto at = lists[rank].find(name);
    by_value[at == lists[rank].end() ? kNotSet : at->second].push_back(static_cast<int>(rank));
  }
  return {by_value.begin(), by_value.end()};
}

// First the value of the fewest, which is probably the mistake; of as many, that of the highest ranks.
std::string told(const std::string& name, Holders holders) {
  std::ranges::sort(holders, {},
                    [](const auto& holder) { return std::pair(holder.second.size(), -holder.second.front()); });
  std::vector<std::string> parts;
  for (const auto& [value, ranks] : holders) {
    if (parts.size() == kMostValues) {
      parts.push_back(fmt::format("and {} other values", holders.size() - kMostValues));
      break;
    }
    parts.push_back(fmt::format("{} {} {}{}", ranks_text(ranks), ranks.size() == 1 ? "has" : "have",
                                parts.empty() ? name + " = " : "", shown(value)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

std::string ranks_text(const std::vector<int>& ranks) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    parts.push_back(last == i ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[last]));
    i = last + 1;
  }
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(parts, ", "));
}

TextExchange texts_over(Communicator& ranks) {
  return [&ranks](const std::string& mine) { return gather_texts(ranks, mine); };
}

std::optional<std::string> find_disagreement(const NamedValues& mine, const TextExchange& exchange) {
  const std::string text = packed(mine);
  const std::uint64_t sum = checksum(std::as_bytes(std::span(text)));
  const std::vector<std::string> sums = exchange(fmt::format("{:016x}", sum));
  const auto differs = [&](const std::string& other) { return other != sums.front(); };
  if (std::ranges::none_of(sums, differs)) return std::nullopt;

  std::vector<std::string> names;  // in rank 0's order, then what other ranks have more
  std::set<std::string> known;
  std::vector<std::map<std::string, std::string>> lists;
  for (const std::string& other : exchange(text.substr(0, kMostText))) {
    const NamedValues list = unpacked(other);
    lists.emplace_back(list.begin(), list.end());
    for (const auto& [name, value] : list)
      if (known.insert(name).second) names.push_back(name);
  }
  std::string first;
  int more = 0;
  for (const std::string& name : names) {
    const Holders holders = holders_of(lists, name);
    if (holders.size() == 1) continue;
    if (first.empty())
      first = told(name, holders);
    else
      ++more;
  }
  if (first.empty()) {  // in what was cut away
    std::map<std::string, std::vector<int>> by_sum;
    for (std::size_t rank = 0; rank < sums.size(); ++rank) by_sum[sums[rank]].push_back(static_cast<int>(rank));
    return told("a checksum of all settings", {by_sum.begin(), by_sum.end()});
  }
  return more == 0 ? first : fmt::format("{} ({} more differ{})", first, more, more == 1 ? "s" : "");
}

}  // namespace lockstep
