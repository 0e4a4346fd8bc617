// How the hall fails, and in which words.
#include <fmt/ranges.h>

#include <algorithm>

#include "comm/threads/hall.h"

namespace lockstep::threads {

void each_group(Group& group, const std::function<void(Group&)>& each) {
  each(group);
  for (auto& [division, part] : group.parts) each_group(*part, each);
}

void each_meeting(Group& group, const std::function<void(Meeting&)>& each) {
  for (auto& [sequence, meeting] : group.collectives.meetings) each(*meeting);
  for (auto& [pair, channel] : group.pairs)
    for (auto& [sequence, meeting] : channel.meetings) each(*meeting);
}

// A rank can no longer come: it has left the group, or the group this one is a part of before it joined, or is ended.
bool Hall::gone(const Group& group, int rank) const {
  const int world_rank = group.members[rank];
  if (group.left[rank] || ended_[world_rank]) return true;
  if (group.joined[rank] || !group.parent) return false;
  const std::vector<int>& above = group.parent->members;
  return gone(*group.parent, static_cast<int>(std::find(above.begin(), above.end(), world_rank) - above.begin()));
}

void Hall::fail(Group& group, const Failure& failure) {
  if (!group.failure) group.failure = failure;
  each_meeting(group, [&](Meeting& meeting) {
    if (meeting.state != Meeting::State::gathering) return;
    meeting.state = Meeting::State::failed;
    meeting.failure = *group.failure;
    wake_all(meeting);
  });
}

void Hall::fail_late(Meeting& meeting) {
  fail(meeting.group, {who_is_missing(meeting, fmt::format(" within {} s", deadline_))});
}

void Hall::fail_if_someone_is_gone(Group& group) {
  each_meeting(group, [&](const Meeting& meeting) {
    if (group.failure || meeting.state != Meeting::State::gathering) return;
    for (std::size_t i = 0; i < meeting.ranks.size(); ++i) {
      if (meeting.calls[i] || !gone(group, meeting.ranks[i])) continue;
      const int rank = group.members[meeting.ranks[i]];
      const std::string how = ended_[rank] ? *ended_[rank] : "has left the group";
      return fail(
          group,
          {fmt::format("{}: rank {} {} and will not come ({})", title(meeting), rank, how, last_call(rank)), true});
    }
  });
}

void Hall::end(int world_rank, const std::string& how) {
  const Lock lock(mutex_);
  if (!ended_[world_rank]) ended_[world_rank] = how;
  each_group(world_, [&](Group& group) { fail_if_someone_is_gone(group); });
}

void Hall::abort(const std::string& reason) {
  const Lock lock(mutex_);
  if (!aborted_) aborted_ = Failure{reason, true};
  each_group(world_, [&](Group& group) { fail(group, *aborted_); });
}

std::string Hall::missing(Meeting& meeting) {
  const Lock lock(mutex_);
  return meeting.state == Meeting::State::gathering ? who_is_missing(meeting, "") : "";
}

// By the first call there is: which rank's it is makes no difference until they differ.
std::string Hall::title(const Meeting& meeting) const {
  for (const auto& call : meeting.calls)
    if (call)
      return fmt::format("#{} of '{}', {}", meeting.sequence, meeting.group.name,
                         describe(*call, static_cast<int>(meeting.group.members.size())));
  return fmt::format("#{} of '{}'", meeting.sequence, meeting.group.name);
}

std::string Hall::who_is_missing(const Meeting& meeting, const std::string& until_when) const {
  std::vector<int> who;
  for (std::size_t i = 0; i < meeting.ranks.size(); ++i)
    if (!meeting.calls[i]) who.push_back(meeting.group.members[meeting.ranks[i]]);
  return fmt::format("{}: {} {} {} not come{}; {}", title(meeting), who.size() == 1 ? "rank" : "ranks",
                     fmt::join(who, ", "), who.size() == 1 ? "has" : "have", until_when, whereabouts(meeting.group));
}

std::string Hall::whereabouts(const Group& group) const {
  constexpr std::size_t kMost = 16;
  std::string text;
  for (std::size_t i = 0; i < group.members.size() && i < kMost; ++i)
    text += fmt::format("{}rank {}: {}", i ? "; " : "", group.members[i], last_call(group.members[i]));
  if (group.members.size() > kMost) text += fmt::format("; and {} more", group.members.size() - kMost);
  return text;
}

std::string Hall::last_call(int world_rank) const {
  const Seen& seen = seen_[world_rank];
  if (!seen.group) return "no call yet";
  return fmt::format("last in {} #{} of '{}', {}", name_of(seen.op), seen.sequence, seen.group->name,
                     seen.done ? "done" : "not done");
}

}  // namespace lockstep::threads
