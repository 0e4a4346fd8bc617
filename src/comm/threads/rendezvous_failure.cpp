// How operations of thread ranks fail, and with which messages.
#include <algorithm>

#include "comm/failure_text.h"
#include "comm/threads/rendezvous.h"

namespace lockstep::threads {

void each_group(ThreadGroup& group, const std::function<void(ThreadGroup&)>& each) {
  each(group);
  for (auto& [division, part] : group.parts) each_group(*part, each);
}

void each_operation(ThreadGroup& group, const std::function<void(PendingOperation&)>& each) {
  for (auto& [sequence, operation] : group.collectives.operations) each(*operation);
  for (auto& [pair, queue] : group.pairs)
    for (auto& [sequence, operation] : queue.operations) each(*operation);
}

// A rank can no longer arrive: it has left the group, or has left the group this one is a part of before it joined, or
// has ended.
bool Rendezvous::gone(const ThreadGroup& group, int rank) const {
  const int world_rank = group.members[rank];
  if (group.left[rank] || ended_[world_rank]) return true;
  if (group.joined[rank] || !group.parent) return false;
  const std::vector<int>& above = group.parent->members;
  return gone(*group.parent, static_cast<int>(std::find(above.begin(), above.end(), world_rank) - above.begin()));
}

void Rendezvous::fail(ThreadGroup& group, const CommFailure& failure) {
  if (!group.failure) group.failure = failure;
  each_operation(group, [&](PendingOperation& operation) {
    if (operation.state != PendingOperation::State::waiting) return;
    operation.state = PendingOperation::State::failed;
    operation.failure = *group.failure;
    wake_all(operation);
  });
}

void Rendezvous::fail_late(PendingOperation& operation) {
  fail(operation.group, {who_is_missing(operation, within_text(deadline_))});
}

void Rendezvous::fail_if_someone_is_gone(ThreadGroup& group) {
  each_operation(group, [&](const PendingOperation& operation) {
    if (group.failure || operation.state != PendingOperation::State::waiting) return;
    for (std::size_t i = 0; i < operation.ranks.size(); ++i) {
      if (operation.calls[i] || !gone(group, operation.ranks[i])) continue;
      const int rank = group.members[operation.ranks[i]];
      const std::string how = ended_[rank] ? *ended_[rank] : kHasLeft;
      return fail(group, {will_not_come_text(title(operation), rank, how, last_call(rank)), true});
    }
  });
}

void Rendezvous::end(int world_rank, const std::string& how) {
  const Lock lock(mutex_);
  if (!ended_[world_rank]) ended_[world_rank] = how;
  each_group(world_, [&](ThreadGroup& group) { fail_if_someone_is_gone(group); });
}

void Rendezvous::abort(const std::string& reason) {
  const Lock lock(mutex_);
  if (!aborted_) aborted_ = CommFailure{reason, true};
  each_group(world_, [&](ThreadGroup& group) { fail(group, *aborted_); });
}

std::string Rendezvous::missing(PendingOperation& operation) {
  const Lock lock(mutex_);
  return operation.state == PendingOperation::State::waiting ? who_is_missing(operation, "") : "";
}

// By the first call there is: which rank's it is makes no difference until they differ.
std::string Rendezvous::title(const PendingOperation& operation) const {
  for (const auto& call : operation.calls)
    if (call)
      return operation_title(operation.sequence, operation.group.name, *call,
                             static_cast<int>(operation.group.members.size()));
  return operation_name(operation.sequence, operation.group.name);
}

std::string Rendezvous::who_is_missing(const PendingOperation& operation, const std::string& until_when) const {
  std::vector<int> who;
  for (std::size_t i = 0; i < operation.ranks.size(); ++i)
    if (!operation.calls[i]) who.push_back(operation.group.members[operation.ranks[i]]);
  // A rank that is waited for may itself wait for another, as stages of a pipeline do: then the cause are those that
  // are in no call.
  const auto waits = [this](int rank) { return last_calls_[rank].group && !last_calls_[rank].done; };
  if (std::ranges::all_of(who, waits)) {
    std::vector<int> idle;
    for (const int rank : world_.members)
      if (!waits(rank) && !ended_[rank]) idle.push_back(rank);
    if (!idle.empty()) who = idle;
  }
  return not_come_text(title(operation), who, until_when,
                       last_calls_text(operation.group.members, [this](int rank) { return last_call(rank); }));
}

std::string Rendezvous::last_call(int world_rank) const {
  const LastCall& last = last_calls_[world_rank];
  return last.group ? last_call_text(last.op, last.sequence, last.group->name, last.done) : kNoCallYet;
}

}  // namespace lockstep::threads
