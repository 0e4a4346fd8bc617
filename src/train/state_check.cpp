#include "train/state_check.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"
#include "comm/agreement.h"
#include "comm/control/socket.h"
#include "comm/gather_texts.h"
#include "kernels/block_sum.h"

namespace lockstep {

namespace {

// By kind: where, and a sum of the hashes; zeros where there is nothing of the kind.
using Summary = std::array<std::array<std::uint64_t, 2>, kHashedKinds>;

Summary summary_of(std::span<const StateHashes::Entry> entries, std::span<const StateHash> hashes) {
  Summary summary{};
  for (std::size_t i = 0; i < entries.size(); ++i) {
    auto& [place, sum] = summary[static_cast<std::size_t>(entries[i].kind)];
    place = placed_sum(place, entries[i].place);
    sum = placed_sum(sum, static_cast<std::uint64_t>(hashes[i].low));
    sum = placed_sum(sum, static_cast<std::uint64_t>(hashes[i].high));
  }
  return summary;
}

bool differ(std::span<const Summary> by_rank) {
  for (int kind = 0; kind < kHashedKinds; ++kind) {
    std::map<std::uint64_t, std::uint64_t> sums;
    for (const Summary& summary : by_rank) {
      const auto& [place, sum] = summary[static_cast<std::size_t>(kind)];
      if (sums.emplace(place, sum).first->second != sum) return true;
    }
  }
  return false;
}

std::string told_text(std::span<const StateHashes::Entry> entries, std::span<const StateHash> hashes) {
  nlohmann::json lines = nlohmann::json::array();
  for (std::size_t i = 0; i < entries.size(); ++i)
    lines.push_back({entries[i].place, hashes[i].low, hashes[i].high, entries[i].name});
  return nlohmann::json{{"host", control::host_name()}, {"entries", std::move(lines)}}.dump();
}

ToldState parse_told(const std::string& text) {
  const nlohmann::json told = nlohmann::json::parse(text);
  ToldState state{.host = told.at("host"), .entries = {}};
  for (const nlohmann::json& line : told.at("entries"))
    state.entries.push_back({line[0].get<std::uint64_t>(),
                             {line[1].get<std::int64_t>(), line[2].get<std::int64_t>()},
                             line[3].get<std::string>()});
  return state;
}

// "block 3: m and 2 more".
std::string names_text(const std::vector<std::string>& names) {
  return names.size() == 1 ? names.front() : fmt::format("{} and {} more", names.front(), names.size() - 1);
}

void add_name(std::vector<std::string>& names, const std::string& name) {
  if (std::ranges::find(names, name) == names.end()) names.push_back(name);
}

}  // namespace

StateDifference explain_difference(std::span<const ToldState> by_rank, std::int64_t step) {
  std::map<std::uint64_t, std::vector<std::pair<int, const ToldState::Entry*>>> places;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank)
    for (const ToldState::Entry& entry : by_rank[rank].entries)
      places[entry.place].emplace_back(static_cast<int>(rank), &entry);
  struct Odd {
    std::size_t others = 0;  // that agree with each other
    std::vector<std::string> names = {};
  };
  std::map<int, Odd> odd;
  std::set<int> undecided;
  std::vector<std::string> undecided_names;
  for (const ToldState& state : by_rank)  // in the order of the model
    for (const ToldState::Entry& named : state.entries) {
      const auto& holders = places.at(named.place);
      std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> votes;
      for (const auto& [rank, entry] : holders) ++votes[{entry->hash.low, entry->hash.high}];
      if (votes.size() == 1) continue;
      const auto most = std::ranges::max_element(votes, {}, [](const auto& vote) { return vote.second; });
      if (2 * most->second <= holders.size()) {
        for (const auto& [rank, entry] : holders) undecided.insert(rank);
        add_name(undecided_names, named.name);
        continue;
      }
      for (const auto& [rank, entry] : holders) {
        if (std::pair(entry->hash.low, entry->hash.high) == most->first) continue;
        Odd& its = odd[rank];
        its.others = std::max(its.others, most->second);
        add_name(its.names, named.name);
      }
    }
  StateDifference found;
  for (const auto& [rank, its] : odd) {
    if (!found.text.empty()) found.text += "; ";
    found.blamed.push_back(rank);
    found.text +=
        fmt::format("rank {} (host {}): its state differs from {} replicas' at step {}: tensor group {}", rank,
                    by_rank[static_cast<std::size_t>(rank)].host, its.others, step, names_text(its.names));
  }
  if (found.blamed.empty())
    found.text = fmt::format(
        "the state of {} differs at step {}: tensor group {}; with as many replicas on either side "
        "nobody can tell whose is wrong",
        ranks_text({undecided.begin(), undecided.end()}), step, names_text(undecided_names));
  return found;
}

std::optional<StateDifference> compare_state(Communicator& ranks, std::span<const StateHashes::Entry> entries,
                                             std::span<const StateHash> hashes, std::int64_t step) {
  const Summary mine = summary_of(entries, hashes);
  constexpr std::int64_t kWords = sizeof(Summary) / 8;
  std::vector<Summary> all(static_cast<std::size_t>(ranks.size()));
  ranks
      .all_gather(Tensor(all.data(), DType::i64, ranks.device(), {kWords * ranks.size()}),
                  ConstTensor(&mine, DType::i64, ranks.device(), {kWords}))
      ->wait();
  if (!differ(all)) return std::nullopt;
  std::vector<ToldState> told;
  for (const std::string& text : gather_texts(ranks, told_text(entries, hashes))) told.push_back(parse_told(text));
  return explain_difference(told, step);
}

}  // namespace lockstep
