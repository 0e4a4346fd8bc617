#include "comm/processes/engine.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "comm/failure_text.h"
#include "comm/processes/collective.h"
#include "comm/processes/point_to_point.h"

namespace lockstep::processes {

namespace {

constexpr auto kLook = std::chrono::milliseconds(20);  // between looks at who is gone

std::uint64_t hash_of(std::uint64_t seed, const void* data, std::size_t bytes) {  // FNV-1a
  std::uint64_t h = seed ^ 0xcbf29ce484222325u;
  for (std::size_t i = 0; i < bytes; ++i) h = (h ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3u;
  return h;
}

ProcessGroup::QueueKey queue_of(const Message& message) {
  return point_to_point(message.op) ? ProcessGroup::QueueKey{message.op, message.peer}
                                    : ProcessGroup::QueueKey{CommOp::barrier, 0};
}

}  // namespace

Engine::Engine(World world, HostWindow& host, Transport& transport, Stream& stream, std::unique_ptr<SharedFiles> files)
    : world_(std::move(world)),
      host_(host),
      transport_(transport),
      wide_sum_(stream),
      files_(std::move(files)),
      own_(host.process_slot(world_.process_slots[static_cast<std::size_t>(world_.rank)])),
      watch_(host, world_.process_slots[static_cast<std::size_t>(world_.rank)]),
      spins_(waiting::may_spin(host.processes())) {}

Engine::GroupPointer Engine::open(const Division& division, ProcessGroup* parent) {
  const Lock lock(mutex_);
  std::vector<int> hosts;
  for (const int member : division.members) hosts.push_back(world_.hosts[static_cast<std::size_t>(member)]);
  auto group = std::make_shared<ProcessGroup>(
      ProcessGroup{.name = division.name, .members = division.members, .rank = division.rank, .key = division.key});
  group->placement = Placement(hosts, division.rank);
  for (const int member : division.members)
    group->process_slots.push_back(world_.process_slots[static_cast<std::size_t>(member)]);
  group->aborted = &host_.header().aborted;
  const std::vector<int>& here = group->placement.local_ranks();
  for (const int rank : here)
    group->processes.push_back(process_slot(division.members[static_cast<std::size_t>(rank)]));

  const GroupWindow::Extent extent{group->size(), group->placement.hosts(), static_cast<int>(here.size()),
                                   world_.slot_bytes};
  const std::uint64_t digest = hash_of(hash_of(0, division.members.data(), division.members.size() * sizeof(int)),
                                       division.name.data(), division.name.size());
  GroupEntry found;
  auto mapping = host_.open({division.key, digest, static_cast<std::uint64_t>(GroupWindow::bytes(extent)),
                             group->size(), extent.here, division.name},
                            found);
  if (!mapping) {
    const CommFailure failure{different_splits_text(
        world_.rank, parent ? parent->name : "", {division.name, division.members.size()}, {found.name, found.ranks})};
    if (parent) fail(*parent, failure);
    failure.raise();
  }
  group->window = std::make_shared<GroupWindow>(std::move(mapping), extent);
  if (const auto notice = notices_.find(division.key); notice != notices_.end()) group->failure = notice->second;
  groups_.push_back(group);
  return group;
}

void Engine::close(const GroupPointer& group) noexcept {
  const Lock lock(mutex_);
  advance(*group);
  group->window->rank_state(group->local_rank()).left.store(1);
  group->notify_all();
  host_.close(group->key);
  if (group->queues.empty()) std::erase(groups_, group);  // else when they are done
}

std::unique_ptr<Memory> Engine::memory(const ProcessGroup& group, Ledger& ledger) const {
  if (!files_ || group.several_hosts() || group.size() == 1) return nullptr;
  return std::make_unique<SharedMemory>(files_->own, ledger);
}

Engine::Lock Engine::enter() {
  ++wanted_;
  Lock lock(mutex_);
  --wanted_;
  return lock;
}

std::shared_ptr<Operation> Engine::start(ProcessGroup& group, const Message& message) {
  const Lock lock = enter();
  const std::uint64_t sequence = group.sequence.next(message);
  const std::size_t n = std::min(group.name.size(), sizeof(own_.group) - 1);
  std::memcpy(own_.group, group.name.data(), n);
  own_.group[n] = 0;
  own_.op.store(static_cast<std::uint32_t>(message.op));
  own_.done.store(0);
  own_.sequence.store(sequence);
  std::shared_ptr<Operation> operation;
  const PlanContext context{transport_, wide_sum_, files_.get(), world_.least_seen};
  if (!message.also.empty())
    operation = std::make_shared<CollectiveOfSeveral>(group, message, sequence, context);
  else if (!point_to_point(message.op))
    operation = std::make_shared<Collective>(group, message, sequence, context);
  else if (group.placement.here(message.peer))
    operation = std::make_shared<LocalPointToPoint>(group, message, sequence);
  else
    operation = std::make_shared<RemotePointToPoint>(group, message, sequence, transport_);
  adopt_failure(group);
  group.queues[queue_of(message)].push_back(operation);
  advance(group);
  return operation;
}

void Engine::end(Operation& operation, const CommFailure& failure) {
  operation.over = true;
  operation.failure = failure;
  if (own_.sequence.load() == operation.sequence() && operation.group().name == own_.group)
    own_.done.store(failure.what.empty());
}

void Engine::adopt_failure(ProcessGroup& group) {
  const SharedFailure &own = group.window->failure(), &all = host_.header().aborted;
  if (group.failure) return;
  if (own.failed())
    group.failure = own.get();
  else if (all.failed())
    group.failure = all.get();
}

void Engine::advance(ProcessGroup& group) {
  if (!group.failure) advance_queues(group);
  adopt_failure(group);  // after that: what all have come to ends well
  if (!group.failure) return;
  failed_ = true;
  for (auto& [kind, queue] : group.queues) {
    // What the transport still has is seen to its end before it is called failed.
    while (!queue.empty() && !queue.back()->held()) {
      end(*queue.back(), *group.failure);
      queue.pop_back();
    }
  }
  std::erase_if(group.queues, [](const auto& line) { return line.second.empty(); });
}

void Engine::advance_queues(ProcessGroup& group) {
  for (auto line = group.queues.begin(); line != group.queues.end();) {
    auto& [kind, queue] = *line;
    try {
      for (auto at = queue.begin(); at != queue.end();) {
        Operation& operation = **at;
        const bool done = operation.advance();
        if (!done && !operation.lets_next()) break;
        if (done) end(operation, {});
        at = done ? queue.erase(at) : at + 1;
      }
    } catch (const CommError& error) {
      fail(group, {error.what(), error.secondary()}, group.several_hosts());
    } catch (const std::exception& error) {
      fail(group, {queue.front()->title() + ": " + error.what()});
    }
    line = queue.empty() ? group.queues.erase(line) : std::next(line);
  }
}

bool Engine::advance_all() {
  bool more = false;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i]->queues.empty()) continue;
    advance(*groups_[i]);
    for (const auto& [kind, queue] : groups_[i]->queues) more |= queue.front()->more();
    if (groups_[i]->queues.empty() && groups_[i]->window->rank_state(groups_[i]->local_rank()).left.load())
      groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(i--));
  }
  return more;
}

bool Engine::test(Operation& operation, Clock::time_point deadline) {
  const Lock lock = enter();
  if (operation.over) return true;
  advance_all();
  if (!operation.over) detect_failures();
  if (!operation.over && Clock::now() >= deadline) fail_late(operation, deadline);
  return operation.over;
}

Clock::duration Engine::sleep_limit(Clock::time_point deadline) const {
  return std::clamp<Clock::duration>(deadline - Clock::now(), std::chrono::milliseconds(1), kLook);
}

void Engine::wait(Operation& operation, Clock::time_point deadline) {
  Wakeup& wakeup = own_.wakeup;
  wakeup.has_waiter.store(1);
  std::uint32_t seen = 0;
  Clock::time_point looked = Clock::now();
  for (;;) {
    seen = wakeup.signals.load();
    bool more = false;
    {
      const Lock lock = enter();
      if (!operation.over) more = advance_all();
      if (operation.over) break;
    }
    const auto notified = [&] { return wakeup.signals.load() != seen; };
    if (!more && spins_) waiting::spin_until(notified);
    if (!more && !notified()) sleep_on(wakeup.signals, seen, wakeup.waiter_asleep, sleep_limit(deadline));
    const Clock::time_point now = Clock::now();
    if (now - looked < kLook && now < deadline) continue;
    looked = now;
    const Lock lock(mutex_);
    detect_failures();
    if (!operation.over && now >= deadline) fail_late(operation, deadline);
  }
  wakeup.has_waiter.store(0);
  if (wakeup.signals.load() != seen) wakeup.notify_progress();  // what came since is for the progress thread
}

void Engine::abandon(Operation& operation) noexcept {
  const auto until = waiting::deadline_in(world_.deadline_seconds);
  for (;;) {
    {
      const Lock lock(mutex_);
      if (!operation.over) advance_all();
      if (operation.over) return;
      ProcessGroup& group = operation.group();
      if (!operation.held()) {
        fail(group, {went_away_text(world_.rank, operation.title()), true});
        advance(group);
        if (operation.over) return;  // else another rank has begun a piece of it in the meantime
      }
    }
    if (Clock::now() >= until) {
      fmt::print(stderr, "rank {} cannot take {} back; the process ends\n", world_.rank, operation.title());
      _exit(static_cast<int>(ExitCode::environment));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool Engine::serve() {
  // A mutex is for whoever takes it first, and who has just left it is: one that wants it is let in.
  for (int i = 0; i < 100 && wanted_.load() > 0; ++i) std::this_thread::yield();
  const Lock lock(mutex_);
  const bool more = advance_all();
  detect_failures();
  if (files_) files_->tidy();
  return more;
}

}  // namespace lockstep::processes
