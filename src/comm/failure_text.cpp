#include "comm/failure_text.h"

#include <fmt/ranges.h>

namespace lockstep {

std::string operation_name(std::uint64_t sequence, const std::string& group) {
  return fmt::format("#{} of '{}'", sequence, group);
}

std::string operation_title(std::uint64_t sequence, const std::string& group, const Message& call, int ranks) {
  return fmt::format("{}, {}", operation_name(sequence, group), describe(call, ranks));
}

std::string mismatch_text(std::uint64_t sequence, const std::string& group, const std::string& how) {
  return fmt::format("mismatched calls at {}: {}", operation_name(sequence, group), how);
}

std::string different_calls_text(const RankCall& first, const RankCall& second, int ranks) {
  return fmt::format("rank {} called {}, rank {} called {}", first.rank, describe(first.call, ranks), second.rank,
                     describe(second.call, ranks));
}

std::string room_text(int rank, std::int64_t room, std::int64_t given) {
  return fmt::format("rank {} has room for {} elements of an all_to_all in which the ranks together give it {}", rank,
                     room, given);
}

std::string all_to_all_fault(std::span<const Message* const> calls, const std::vector<int>& members) {
  const auto ranks = static_cast<std::int64_t>(calls.size());
  for (std::size_t to = 0; to < calls.size(); ++to) {
    std::int64_t given = 0;
    for (const Message* call : calls) given += call->counts.empty() ? call->in.elements() / ranks : call->counts[to];
    const std::int64_t room = calls[to]->out.elements();
    if (room != given) return room_text(members[to], room, given);
  }
  return "";
}

std::string different_splits_text(int rank, const std::string& group, const SplitInto& mine, const SplitInto& others) {
  return fmt::format(
      "rank {} divides '{}' into a '{}' of {} ranks, the others into a '{}' of {} ranks, or of other ranks", rank,
      group, mine.name, mine.ranks, others.name, others.ranks);
}

std::string last_call_text(CommOp op, std::uint64_t sequence, const std::string& group, bool done) {
  return fmt::format("last in {} {}, {}", name_of(op), operation_name(sequence, group), done ? "done" : "not done");
}

std::string last_calls_text(const std::vector<int>& members, const std::function<std::string(int rank)>& last_call) {
  constexpr std::size_t kMost = 16;
  std::string text;
  for (std::size_t i = 0; i < members.size() && i < kMost; ++i)
    text += fmt::format("{}rank {}: {}", i ? "; " : "", members[i], last_call(members[i]));
  if (members.size() > kMost) text += fmt::format("; and {} more", members.size() - kMost);
  return text;
}

std::string within_text(double seconds) { return fmt::format(" within {} s", seconds); }

std::string not_come_text(const std::string& title, const std::vector<int>& missing, const std::string& until_when,
                          const std::string& last_calls) {
  return fmt::format("{}: {} {} {} not come{}; {}", title, missing.size() == 1 ? "rank" : "ranks",
                     fmt::join(missing, ", "), has_or_have(missing.size()), until_when, last_calls);
}

std::string will_not_come_text(const std::string& title, int rank, const std::string& how,
                               const std::string& last_call) {
  return fmt::format("{}: rank {} {} and will not come{}", title, rank, how,
                     last_call.empty() ? "" : fmt::format(" ({})", last_call));
}

std::string went_away_text(int rank, const std::string& title) {
  return fmt::format("rank {} went away from {} before it was done", rank, title);
}

}  // namespace lockstep
