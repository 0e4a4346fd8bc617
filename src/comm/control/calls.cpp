#include "comm/control/calls.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "comm/failure_text.h"

namespace lockstep::control {

namespace {

int member_of(const GroupSpec& spec, int rank) {
  const auto at = std::find(spec.members.begin(), spec.members.end(), rank);
  return at == spec.members.end() ? -1 : static_cast<int>(at - spec.members.begin());
}

}  // namespace

Calls::Verdict Calls::open(int rank, const GroupSpec& spec) {
  Rank& mine = ranks_[static_cast<std::size_t>(rank)];
  if (mine.groups.contains(spec.id) || mine.groups.size() >= kMostGroups)
    throw CommError(fmt::format("group {} is open already, or one too many", spec.id));
  for (const int other : spec.members)
    if (other >= static_cast<int>(ranks_.size())) throw CommError(fmt::format("a group with a rank {}", other));
  if (std::set<int>(spec.members.begin(), spec.members.end()).size() != spec.members.size())
    throw CommError(fmt::format("a group '{}' with a rank twice", spec.name));
  const int member = member_of(spec, rank);
  if (member < 0) throw CommError(fmt::format("a group '{}' of other ranks", spec.name));
  std::unique_ptr<GroupCalls>& group = groups_[spec.key];
  if (!group) {
    group = std::make_unique<GroupCalls>(GroupCalls{spec});
    group->opened.resize(spec.members.size());
    group->closed.resize(spec.members.size());
  } else if (group->spec.members != spec.members || group->spec.name != spec.name) {
    return CommFailure{fmt::format("rank {} makes '{}' a group of ranks {}, another rank made it '{}' of ranks {}",
                                   rank, spec.name, fmt::join(spec.members, ", "), group->spec.name,
                                   fmt::join(group->spec.members, ", "))};
  }
  // Under two numbers it would be gone with the first that is closed.
  if (group->opened[static_cast<std::size_t>(member)]) throw CommError(fmt::format("'{}' is opened twice", spec.name));
  group->opened[static_cast<std::size_t>(member)] = true;
  mine.groups[spec.id] = group.get();
  for (const int other : spec.members)
    if (ranks_[static_cast<std::size_t>(other)].ended) group->someone_is_gone = true;
  return std::nullopt;
}

Calls::Verdict Calls::close(int rank, std::uint32_t id) {
  GroupCalls& group = group_of(rank, id);
  ranks_[static_cast<std::size_t>(rank)].groups.erase(id);
  group.closed[static_cast<std::size_t>(member_of(group.spec, rank))] = true;
  group.someone_is_gone = true;
  if (std::all_of(group.closed.begin(), group.closed.end(), [](char closed) { return closed; })) {
    groups_.erase(std::string(group.spec.key));
    return std::nullopt;
  }
  return fail_if_someone_is_gone(group);
}

Calls::GroupCalls& Calls::group_of(int rank, std::uint32_t id) const {
  const auto& groups = ranks_[static_cast<std::size_t>(rank)].groups;
  const auto at = groups.find(id);
  if (at == groups.end()) throw CommError(fmt::format("group {} is not open", id));
  return *at->second;
}

std::pair<int, int> Calls::ends_of(int member, const Record& record) {
  if (record.op == CommOp::send) return {member, record.peer};
  if (record.op == CommOp::recv) return {record.peer, member};
  return {-1, -1};
}

Calls::Verdict Calls::note(int rank, std::span<const Record> records) {
  Rank& mine = ranks_[static_cast<std::size_t>(rank)];
  std::vector<GroupCalls*> touched;
  for (const Record& record : records) {
    GroupCalls& group = group_of(rank, record.group);
    const int member = member_of(group.spec, rank);
    const bool pair = point_to_point(record.op);
    if (record.peer >= group.ranks() || (pair && record.peer == member))
      throw CommError(
          fmt::format("a record of {} with a peer {} of {}", name_of(record.op), record.peer, group.ranks()));
    const auto ends = ends_of(member, record);
    CallSequence& calls = group.sequences[ends];
    if (calls.members.empty()) {
      calls.members = {ends.first, ends.second};
      if (!pair) {
        calls.members.resize(group.spec.members.size());
        std::iota(calls.members.begin(), calls.members.end(), 0);
      }
      calls.started.resize(calls.members.size());
      calls.done.resize(calls.members.size());
    }
    const std::size_t place = pair ? (record.op == CommOp::recv) : static_cast<std::size_t>(member);
    if (record.done) {
      calls.done[place] = std::max(calls.done[place], record.sequence);
      LastCall& last = mine.last;
      if (last.group == record.group && last.sequence == record.sequence && last.op == record.op) last.done = true;
      continue;
    }
    mine.last = {group.spec.name, record.op, record.sequence, record.group, false};
    if (auto failure = start(group, calls, place, record)) return failure;
    if (touched.empty() || touched.back() != &group) touched.push_back(&group);
  }
  // After all of them: what was started and is done already waits for nobody.
  for (const GroupCalls* group : touched)
    if (auto failure = fail_if_someone_is_gone(*group)) return failure;
  return std::nullopt;
}

Calls::Verdict Calls::start(GroupCalls& group, CallSequence& calls, std::size_t place, const Record& record) {
  if (record.sequence <= calls.started[place])
    throw CommError(
        fmt::format("a record of #{} of '{}' after #{}", record.sequence, group.spec.name, calls.started[place]));
  calls.started[place] = record.sequence;
  const auto [at, first] = calls.open.try_emplace(record.sequence, Open{static_cast<int>(place), record, 1});
  if (first) {
    if (calls.open.size() > kMostOpen) calls.open.erase(calls.open.begin());
    return std::nullopt;
  }
  Open& open = at->second;
  const int ranks = group.ranks();
  const Message theirs = message_of(open.call, ranks), ours = message_of(record, ranks);
  if (!agree(theirs, ours, ranks)) {
    const auto rank_of = [&](std::size_t i) { return group.spec.members[static_cast<std::size_t>(calls.members[i])]; };
    const RankCall a{rank_of(static_cast<std::size_t>(open.member)), theirs}, b{rank_of(place), ours};
    return CommFailure{
        mismatch_text(record.sequence, group.spec.name,
                      b.rank < a.rank ? different_calls_text(b, a, ranks) : different_calls_text(a, b, ranks))};
  }
  if (++open.arrived == calls.members.size()) calls.open.erase(at);
  return std::nullopt;
}

Calls::Verdict Calls::end(int rank) {
  ranks_[static_cast<std::size_t>(rank)].ended = true;
  for (const auto& [key, group] : groups_)
    if (member_of(group->spec, rank) >= 0) {
      group->someone_is_gone = true;
      if (auto failure = fail_if_someone_is_gone(*group)) return failure;
    }
  return std::nullopt;
}

Calls::Verdict Calls::fail_if_someone_is_gone(const GroupCalls& group) const {
  if (!group.someone_is_gone) return std::nullopt;
  const auto gone = [&](int member) {
    const auto i = static_cast<std::size_t>(member);
    return group.closed[i] || ranks_[static_cast<std::size_t>(group.spec.members[i])].ended;
  };
  for (const auto& [ends, calls] : group.sequences)
    for (std::size_t i = 0; i < calls.members.size(); ++i) {
      if (!gone(calls.members[i])) continue;
      for (auto at = calls.open.upper_bound(calls.started[i]); at != calls.open.end(); ++at) {
        const auto& [sequence, open] = *at;
        bool waited_for = false;
        for (std::size_t j = 0; j < calls.members.size(); ++j)
          waited_for = waited_for || (calls.started[j] >= sequence && calls.done[j] < sequence);
        if (!waited_for) continue;
        const int rank = group.spec.members[static_cast<std::size_t>(calls.members[i])];
        const std::string title =
            operation_title(sequence, group.spec.name, message_of(open.call, group.ranks()), group.ranks());
        const bool ended = ranks_[static_cast<std::size_t>(rank)].ended;
        return CommFailure{will_not_come_text(title, rank, ended ? kHasEnded : kHasLeft, last_call(rank)), true};
      }
    }
  return std::nullopt;
}

std::string Calls::last_call(int rank) const {
  const LastCall& last = ranks_[static_cast<std::size_t>(rank)].last;
  if (last.sequence == 0) return kNoCallYet;
  return fmt::format("its last was {} {} ({})", name_of(last.op), operation_name(last.sequence, last.name),
                     last.done ? "done" : "not done");
}

std::string Calls::whereabouts(int rank, const Record& about, const std::function<double(int rank)>& heard) const {
  constexpr std::size_t kMost = 8;
  const GroupCalls& group = group_of(rank, about.group);
  const auto calls = group.sequences.find(ends_of(member_of(group.spec, rank), about));
  const std::string what = fmt::format("{} {}", name_of(about.op), operation_name(about.sequence, group.spec.name));
  if (calls == group.sequences.end()) return fmt::format("nobody has come to {}", what);
  std::vector<int> missing, not_done;
  for (std::size_t i = 0; i < calls->second.members.size(); ++i) {
    const int member = group.spec.members[static_cast<std::size_t>(calls->second.members[i])];
    if (calls->second.started[i] < about.sequence) missing.push_back(member);
    if (calls->second.done[i] < about.sequence) not_done.push_back(member);
  }
  if (missing.empty())
    return fmt::format("all ranks have come to {}; not done on {} {}", what, not_done.size() == 1 ? "rank" : "ranks",
                       fmt::join(not_done, ", "));
  std::string text;
  for (std::size_t i = 0; i < missing.size() && i < kMost; ++i)
    text += fmt::format("{}rank {} has not come to {}; {}{}, heard from {:.1f} s ago", i ? "; " : "", missing[i], what,
                        ranks_[static_cast<std::size_t>(missing[i])].ended ? "it has ended; " : "",
                        last_call(missing[i]), heard(missing[i]));
  if (missing.size() > kMost) text += fmt::format("; nor have {} more", missing.size() - kMost);
  return text;
}

}  // namespace lockstep::control
