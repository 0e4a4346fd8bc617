// How operations of processes fail, and with which messages.
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "comm/failure_text.h"
#include "comm/processes/engine.h"

namespace lockstep::processes {

ProcessWatch::ProcessWatch(HostWindow& host, int own_slot) : host_(host) {
  for (int slot = 0; slot < host.processes(); ++slot)
    if (slot != own_slot)
      others_.emplace_back(slot, static_cast<int>(syscall(SYS_pidfd_open, host.process_slot(slot).process.load(), 0)));
}

ProcessWatch::~ProcessWatch() {
  for (const auto& [slot, file] : others_)
    if (file >= 0) ::close(file);
}

int ProcessWatch::gone() const {
  for (const auto& [slot, file] : others_) {
    ProcessSlot& other = host_.process_slot(slot);
    pollfd asked{file, POLLIN, 0};
    // A process that nobody has waited for yet is gone all the same: the file says so, a signal would not.
    const bool is_gone = file >= 0 ? poll(&asked, 1, 0) > 0 : kill(other.process.load(), 0) != 0 && errno == ESRCH;
    if (is_gone && other.ended.load() == 0) return slot;
  }
  return -1;
}

ProcessSlot* Engine::process_slot(int world_rank) const {
  const auto at = static_cast<std::size_t>(world_rank);
  if (world_.hosts[at] != world_.hosts[static_cast<std::size_t>(world_.rank)]) return nullptr;
  return &host_.process_slot(world_.process_slots[at]);
}

std::vector<int> Engine::elsewhere(const std::vector<int>& ranks) const {
  std::vector<int> others;
  for (const int rank : ranks)
    if (!process_slot(rank) && !host_.header().silent[rank].load()) others.push_back(rank);
  return others;
}

void Engine::fail(ProcessGroup& group, const CommFailure& failure, bool tell) {
  if (group.failure) return;
  SharedFailure& box = group.window->failure();
  const bool first = box.write(failure);
  group.failure = !first && box.failed() ? box.get() : failure;
  failed_ = true;
  group.notify_all();
  if (tell && first) transport_.tell(elsewhere(group.members), {group.key, failure});
}

void Engine::abort(const CommFailure& failure, bool tell) {
  const Lock lock(mutex_);
  const bool first = host_.header().aborted.write(failure);
  failed_ = true;
  for (int slot = 0; slot < host_.processes(); ++slot) host_.process_slot(slot).wakeup.notify();
  if (!tell || !first) return;
  std::vector<int> all(world_.hosts.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank) all[rank] = static_cast<int>(rank);
  transport_.tell(elsewhere(all), {0, failure});
}

void Engine::handle(const FailureNotice& notice) {
  const CommFailure& failure = notice.failure;
  if (notice.group == 0) return abort(failure, false);
  const Lock lock(mutex_);
  for (const GroupPointer& group : groups_)
    if (group->key == notice.group) {
      fail(*group, failure, false);
      advance(*group);
      own_.wakeup.notify();
      return;
    }
  notices_.emplace(notice.group, failure);
}

bool Engine::failed() {
  const Lock lock(mutex_);
  return failed_ || host_.header().aborted.failed();
}

void Engine::detect_failures() {
  SharedFailure& aborted = host_.header().aborted;
  if (!aborted.failed()) {
    if (const int slot = watch_.gone(); slot >= 0) {
      int rank = 0;
      while (process_slot(rank) != &host_.process_slot(slot)) ++rank;
      const CommFailure failure{fmt::format("rank {} (process {}) is gone; {}", rank,
                                            host_.process_slot(slot).process.load(), last_call(rank))};
      if (aborted.write(failure)) {
        for (int other = 0; other < host_.processes(); ++other) host_.process_slot(other).wakeup.notify();
        std::vector<int> all(world_.hosts.size());
        for (std::size_t r = 0; r < all.size(); ++r) all[r] = static_cast<int>(r);
        transport_.tell(elsewhere(all), {0, failure});
      }
    }
  }
  for (const GroupPointer& group : groups_) {
    if (group->queues.empty()) continue;
    detect_leavers(*group);
    advance(*group);
  }
}

void Engine::detect_leavers(ProcessGroup& group) {
  for (const auto& [kind, queue] : group.queues) {
    const std::shared_ptr<Operation> front = queue.front();
    for (const int rank : front->missing()) {
      if (!group.placement.here(rank)) continue;
      const int name = group.members[static_cast<std::size_t>(rank)];
      const bool left = group.window->rank_state(group.placement.local_rank(rank)).left.load() != 0;
      if (!left && process_slot(name)->ended.load() == 0) continue;
      advance(group);  // it may have come before it left
      if (front->over || group.failure) return;
      return fail(group,
                  {will_not_come_text(front->title(), name, left ? kHasLeft : kHasEnded, last_call(name)), true});
    }
  }
}

void Engine::fail_late(Operation& operation, Clock::time_point deadline) {
  ProcessGroup& group = operation.group();
  const std::vector<int> missing = operation.missing();
  const bool remote = std::none_of(missing.begin(), missing.end(), [&](int r) { return group.placement.here(r); });
  constexpr auto kRemoteGrace = std::chrono::milliseconds(500);  // a missing rank's own host names it better
  if (remote && Clock::now() < deadline + kRemoteGrace) return;
  if (remote)
    for (const int rank : missing) host_.header().silent[group.members[static_cast<std::size_t>(rank)]].store(1);
  fail(group, {who_is_missing(operation, within_text(world_.deadline_seconds))});
  advance(group);
}

std::vector<int> Engine::asleep() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < static_cast<int>(world_.hosts.size()); ++rank)
    if (const ProcessSlot* other = process_slot(rank); other && other->ended.load() == 0 && !other->awake())
      ranks.push_back(rank);
  return ranks;
}

std::string Engine::missing(Operation& operation) {
  const Lock lock(mutex_);
  return operation.over ? "" : who_is_missing(operation, "");
}

std::string Engine::who_is_missing(const Operation& operation, const std::string& until_when) const {
  const ProcessGroup& group = operation.group();
  std::vector<int> who;
  for (const int rank : operation.missing()) who.push_back(group.members[static_cast<std::size_t>(rank)]);
  // A rank that is waited for may itself wait for another, as stages of a pipeline do: a process that hangs is the
  // cause, wherever it is in the row.
  if (const std::vector<int> still = asleep(); !who.empty() && !still.empty()) who = still;
  if (who.empty())  // all have come; the transport has it
    return fmt::format("{}: all ranks have come, but it is not done{}; {}", operation.title(), until_when,
                       last_calls(group));
  return not_come_text(operation.title(), who, until_when, last_calls(group));
}

std::string Engine::last_calls(const ProcessGroup& group) const {
  return last_calls_text(group.members, [this](int rank) { return last_call(rank); });
}

std::string Engine::last_call(int world_rank) const {
  const ProcessSlot* slot = process_slot(world_rank);
  if (!slot) return "on another host";
  const std::uint64_t sequence = slot->sequence.load();
  if (sequence == 0) return kNoCallYet;
  return last_call_text(static_cast<CommOp>(slot->op.load()), sequence, slot->group, slot->done.load() != 0);
}

}  // namespace lockstep::processes
