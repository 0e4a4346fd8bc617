// How the engine fails, and in which words.
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "comm/mpi/engine.h"

namespace lockstep::mpi {

Watch::Watch(HostWindow& host, int own_place) : host_(host) {
  for (int place = 0; place < host.processes(); ++place)
    if (place != own_place)
      others_.emplace_back(place, static_cast<int>(syscall(SYS_pidfd_open, host.citizen(place).process.load(), 0)));
}

Watch::~Watch() {
  for (const auto& [place, file] : others_)
    if (file >= 0) ::close(file);
}

int Watch::gone() const {
  for (const auto& [place, file] : others_) {
    Citizen& other = host_.citizen(place);
    pollfd asked{file, POLLIN, 0};
    // A process that nobody has waited for yet is gone all the same: the file says so, a signal would not.
    const bool is_gone = file >= 0 ? poll(&asked, 1, 0) > 0 : kill(other.process.load(), 0) != 0 && errno == ESRCH;
    if (is_gone && other.ended.load() == 0) return place;
  }
  return -1;
}

Citizen* Engine::citizen(int world_rank) const {
  const auto at = static_cast<std::size_t>(world_rank);
  if (world_.hosts[at] != world_.hosts[static_cast<std::size_t>(world_.rank)]) return nullptr;
  return &host_.citizen(world_.places[at]);
}

std::vector<int> Engine::elsewhere(const std::vector<int>& ranks) const {
  std::vector<int> others;
  for (const int rank : ranks)
    if (!citizen(rank) && !host_.lobby().silent[rank].load()) others.push_back(rank);
  return others;
}

void Engine::fail(Group& group, const Failure& failure, bool tell) {
  if (group.failure) return;
  FailureBox& box = group.window->failure();
  const bool first = box.write(failure.what, failure.secondary);
  group.failure = !first && box.failed() ? Failure{box.words, box.secondary != 0} : failure;
  failed_ = true;
  group.ring_all();
  if (tell && first) wire_.tell(elsewhere(group.members), {group.key, failure.secondary, failure.what});
}

void Engine::abort(const Failure& failure, bool tell) {
  const Lock lock(mutex_);
  const bool first = host_.lobby().aborted.write(failure.what, failure.secondary);
  failed_ = true;
  for (int place = 0; place < host_.processes(); ++place) host_.citizen(place).bell.ring();
  if (!tell || !first) return;
  std::vector<int> all(world_.hosts.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank) all[rank] = static_cast<int>(rank);
  wire_.tell(elsewhere(all), {0, failure.secondary, failure.what});
}

void Engine::hear(const Notice& notice) {
  const Failure failure{notice.words, notice.secondary};
  if (notice.group == 0) return abort(failure, false);
  const Lock lock(mutex_);
  for (const GroupPointer& group : groups_)
    if (group->key == notice.group) {
      fail(*group, failure, false);
      advance(*group);
      own_.bell.ring();
      return;
    }
  notices_.emplace(notice.group, failure);
}

bool Engine::failed() {
  const Lock lock(mutex_);
  return failed_ || host_.lobby().aborted.failed();
}

void Engine::look_around() {
  FailureBox& aborted = host_.lobby().aborted;
  if (!aborted.failed()) {
    if (const int place = watch_.gone(); place >= 0) {
      int rank = 0;
      while (citizen(rank) != &host_.citizen(place)) ++rank;
      const Failure failure{
          fmt::format("rank {} (process {}) is gone; {}", rank, host_.citizen(place).process.load(), last_call(rank))};
      if (aborted.write(failure.what, false)) {
        for (int other = 0; other < host_.processes(); ++other) host_.citizen(other).bell.ring();
        std::vector<int> all(world_.hosts.size());
        for (std::size_t r = 0; r < all.size(); ++r) all[r] = static_cast<int>(r);
        wire_.tell(elsewhere(all), {0, false, failure.what});
      }
    }
  }
  for (const GroupPointer& group : groups_) {
    if (group->lines.empty()) continue;
    look_for_leavers(*group);
    advance(*group);
  }
}

void Engine::look_for_leavers(Group& group) {
  for (const auto& [kind, queue] : group.lines) {
    const std::shared_ptr<Operation> front = queue.front();
    for (const int rank : front->missing()) {
      if (!group.placement.here(rank)) continue;
      const int name = group.members[static_cast<std::size_t>(rank)];
      const bool left = group.window->seat(group.placement.seat(rank)).left.load() != 0;
      if (!left && citizen(name)->ended.load() == 0) continue;
      advance(group);  // it may have come before it left
      if (front->over || group.failure) return;
      return fail(group, {fmt::format("{}: rank {} {} and will not come ({})", front->title(), name,
                                      left ? "has left the group" : "has ended", last_call(name)),
                          true});
    }
  }
}

void Engine::fail_late(Operation& operation, Clock::time_point deadline) {
  Group& group = operation.group();
  const std::vector<int> missing = operation.missing();
  const bool remote = std::none_of(missing.begin(), missing.end(), [&](int r) { return group.placement.here(r); });
  constexpr auto kRemoteGrace = std::chrono::milliseconds(500);  // a missing rank's own host names it better
  if (remote && Clock::now() < deadline + kRemoteGrace) return;
  if (remote)
    for (const int rank : missing) host_.lobby().silent[group.members[static_cast<std::size_t>(rank)]].store(1);
  fail(group, {who_is_missing(operation, fmt::format(" within {} s", world_.deadline_seconds))});
  advance(group);
}

std::vector<int> Engine::asleep() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < static_cast<int>(world_.hosts.size()); ++rank)
    if (const Citizen* other = citizen(rank); other && other->ended.load() == 0 && !other->awake())
      ranks.push_back(rank);
  return ranks;
}

std::string Engine::missing(Operation& operation) {
  const Lock lock(mutex_);
  return operation.over ? "" : who_is_missing(operation, "");
}

std::string Engine::who_is_missing(const Operation& operation, const std::string& until_when) const {
  const Group& group = operation.group();
  std::vector<int> who;
  for (const int rank : operation.missing()) who.push_back(group.members[static_cast<std::size_t>(rank)]);
  // One that is waited for may itself wait for another, as stages of a pipeline do: a process that stands still is the
  // cause, wherever it is in the row.
  if (const std::vector<int> still = asleep(); !who.empty() && !still.empty()) who = still;
  if (who.empty())  // all have come; MPI has it
    return fmt::format("{}: all ranks have come, but it is not done{}; {}", operation.title(), until_when,
                       whereabouts(group));
  return fmt::format("{}: {} {} {} not come{}; {}", operation.title(), who.size() == 1 ? "rank" : "ranks",
                     fmt::join(who, ", "), who.size() == 1 ? "has" : "have", until_when, whereabouts(group));
}

std::string Engine::whereabouts(const Group& group) const {
  constexpr std::size_t kMost = 16;
  std::string text;
  for (std::size_t i = 0; i < group.members.size() && i < kMost; ++i)
    text += fmt::format("{}rank {}: {}", i ? "; " : "", group.members[i], last_call(group.members[i]));
  if (group.members.size() > kMost) text += fmt::format("; and {} more", group.members.size() - kMost);
  return text;
}

std::string Engine::last_call(int world_rank) const {
  const Citizen* citizen = this->citizen(world_rank);
  if (!citizen) return "on another host";
  const std::uint64_t sequence = citizen->sequence.load();
  if (sequence == 0) return "no call yet";
  return fmt::format("last in {} #{} of '{}', {}", name_of(static_cast<CommOp>(citizen->op.load())), sequence,
                     citizen->group, citizen->done.load() ? "done" : "not done");
}

}  // namespace lockstep::mpi
