#include "comm/mpi/engine.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "comm/mpi/collective.h"
#include "comm/mpi/letter.h"

namespace lockstep::mpi {

namespace {

constexpr auto kSpin = std::chrono::microseconds(40);  // a meeting of ranks that have a core each takes less
constexpr auto kPure = std::chrono::microseconds(4);   // of it without offering the core to others
constexpr auto kLook = std::chrono::milliseconds(20);  // between looks at who is gone

std::uint64_t hash_of(std::uint64_t seed, const void* data, std::size_t bytes) {  // FNV-1a
  std::uint64_t h = seed ^ 0xcbf29ce484222325u;
  for (std::size_t i = 0; i < bytes; ++i) h = (h ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3u;
  return h;
}

Group::Line line_of(const Message& message) {
  return point_to_point(message.op) ? Group::Line{message.op, message.peer} : Group::Line{CommOp::barrier, 0};
}

}  // namespace

Engine::Engine(World world, HostWindow& host, Wire& wire, Stream& stream, std::unique_ptr<SharedFiles> files)
    : world_(std::move(world)),
      host_(host),
      wire_(wire),
      wide_sum_(stream),
      files_(std::move(files)),
      own_(host.citizen(world_.places[static_cast<std::size_t>(world_.rank)])),
      watch_(host, world_.places[static_cast<std::size_t>(world_.rank)]),
      spins_(host.processes() <= static_cast<int>(std::thread::hardware_concurrency())) {}

Engine::GroupPointer Engine::open(const Division& division, Group* parent) {
  const Lock lock(mutex_);
  std::vector<int> hosts;
  for (const int member : division.members) hosts.push_back(world_.hosts[static_cast<std::size_t>(member)]);
  auto group = std::make_shared<Group>(
      Group{.name = division.name, .members = division.members, .rank = division.rank, .key = division.key});
  group->placement = Placement(hosts, division.rank);
  for (const int member : division.members) group->places.push_back(world_.places[static_cast<std::size_t>(member)]);
  group->aborted = &host_.lobby().aborted;
  const std::vector<int>& here = group->placement.neighbours();
  for (const int rank : here) group->citizens.push_back(citizen(division.members[static_cast<std::size_t>(rank)]));

  const GroupWindow::Extent extent{group->size(), group->placement.hosts(), static_cast<int>(here.size()),
                                   world_.slot_bytes};
  const std::uint64_t digest = hash_of(hash_of(0, division.members.data(), division.members.size() * sizeof(int)),
                                       division.name.data(), division.name.size());
  GroupEntry found;
  auto mapping = host_.open({division.key, digest, static_cast<std::uint64_t>(GroupWindow::bytes(extent)),
                             group->size(), extent.here, division.name},
                            found);
  if (!mapping) {
    const Failure failure{fmt::format(
        "rank {} divides '{}' into a '{}' of {} ranks, the others into a '{}' of {} ranks, or of other ranks",
        world_.rank, parent ? parent->name : "", division.name, group->size(), found.name, found.ranks)};
    if (parent) fail(*parent, failure);
    throw CommError(failure.what);
  }
  group->window = std::make_shared<GroupWindow>(std::move(mapping), extent);
  if (const auto notice = notices_.find(division.key); notice != notices_.end()) group->failure = notice->second;
  groups_.push_back(group);
  return group;
}

void Engine::close(const GroupPointer& group) noexcept {
  const Lock lock(mutex_);
  advance(*group);
  group->window->seat(group->seat()).left.store(1);
  group->ring_all();
  host_.close(group->key);
  if (group->lines.empty()) std::erase(groups_, group);  // else when they are done
}

std::unique_ptr<Memory> Engine::memory(const Group& group, Ledger& ledger) const {
  if (!files_ || group.several_hosts() || group.size() == 1) return nullptr;
  return std::make_unique<SharedMemory>(files_->own, ledger);
}

Engine::Lock Engine::enter() {
  ++wanted_;
  Lock lock(mutex_);
  --wanted_;
  return lock;
}

std::shared_ptr<Operation> Engine::start(Group& group, const Message& message) {
  const Lock lock = enter();
  const std::uint64_t sequence = group.sequence.next(message);
  const std::size_t n = std::min(group.name.size(), sizeof(own_.group) - 1);
  std::memcpy(own_.group, group.name.data(), n);
  own_.group[n] = 0;
  own_.op.store(static_cast<std::uint32_t>(message.op));
  own_.done.store(0);
  own_.sequence.store(sequence);
  std::shared_ptr<Operation> operation;
  if (!point_to_point(message.op))
    operation = std::make_shared<Collective>(group, message, sequence,
                                             Tools{wire_, wide_sum_, files_.get(), world_.least_seen});
  else if (group.placement.here(message.peer))
    operation = std::make_shared<LocalLetter>(group, message, sequence);
  else
    operation = std::make_shared<RemoteLetter>(group, message, sequence, wire_);
  adopt_failure(group);
  group.lines[line_of(message)].push_back(operation);
  advance(group);
  return operation;
}

void Engine::end(Operation& operation, const Failure& failure) {
  operation.over = true;
  operation.failure = failure;
  if (own_.sequence.load() == operation.sequence() && operation.group().name == own_.group)
    own_.done.store(failure.what.empty());
}

void Engine::adopt_failure(Group& group) {
  const FailureBox& box = group.window->failure();
  const FailureBox& all = host_.lobby().aborted;
  if (group.failure) return;
  if (box.failed())
    group.failure = Failure{box.words, box.secondary != 0};
  else if (all.failed())
    group.failure = Failure{all.words, all.secondary != 0};
}

void Engine::advance(Group& group) {
  if (!group.failure) advance_lines(group);
  adopt_failure(group);  // after that: what all have come to ends well
  if (!group.failure) return;
  failed_ = true;
  for (auto& [kind, queue] : group.lines) {
    // What MPI still has is seen to its end before it is called failed.
    while (!queue.empty() && !queue.back()->held()) {
      end(*queue.back(), *group.failure);
      queue.pop_back();
    }
  }
  std::erase_if(group.lines, [](const auto& line) { return line.second.empty(); });
}

void Engine::advance_lines(Group& group) {
  for (auto line = group.lines.begin(); line != group.lines.end();) {
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
    line = queue.empty() ? group.lines.erase(line) : std::next(line);
  }
}

bool Engine::advance_all() {
  bool more = false;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i]->lines.empty()) continue;
    advance(*groups_[i]);
    for (const auto& [kind, queue] : groups_[i]->lines) more |= queue.front()->more();
    if (groups_[i]->lines.empty() && groups_[i]->window->seat(groups_[i]->seat()).left.load())
      groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(i--));
  }
  return more;
}

bool Engine::ask(Operation& operation, Clock::time_point deadline) {
  const Lock lock = enter();
  if (operation.over) return true;
  advance_all();
  if (!operation.over) look_around();
  if (!operation.over && Clock::now() >= deadline) fail_late(operation, deadline);
  return operation.over;
}

Clock::duration Engine::nap(Clock::time_point deadline) const {
  return std::clamp<Clock::duration>(deadline - Clock::now(), std::chrono::milliseconds(1), kLook);
}

void Engine::wait(Operation& operation, Clock::time_point deadline) {
  Bell& bell = own_.bell;
  bell.attended.store(1);
  std::uint32_t seen = 0;
  Clock::time_point looked = Clock::now();
  for (;;) {
    seen = bell.rings.load();
    bool more = false;
    {
      const Lock lock = enter();
      if (!operation.over) more = advance_all();
      if (operation.over) break;
    }
    const Clock::time_point began = Clock::now();
    for (auto spun = Clock::duration(0); !more && spins_ && spun < kSpin && bell.rings.load() == seen;
         spun = Clock::now() - began) {
      if (spun < kPure)
        __builtin_ia32_pause();
      else
        std::this_thread::yield();  // who is waited for may want this very core
    }
    if (!more && bell.rings.load() == seen) sleep_on(bell.rings, seen, bell.waiter_asleep, nap(deadline));
    const Clock::time_point now = Clock::now();
    if (now - looked < kLook && now < deadline) continue;
    looked = now;
    const Lock lock(mutex_);
    look_around();
    if (!operation.over && now >= deadline) fail_late(operation, deadline);
  }
  bell.attended.store(0);
  if (bell.rings.load() != seen) bell.call();  // what came since is for the progress thread
}

void Engine::give_up(Operation& operation) noexcept {
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::duration<double>(world_.deadline_seconds));
  for (;;) {
    {
      const Lock lock(mutex_);
      if (!operation.over) advance_all();
      if (operation.over) return;
      Group& group = operation.group();
      if (!operation.held()) {
        fail(group,
             {fmt::format("rank {} went away from {} before it was done", world_.rank, operation.title()), true});
        advance(group);
        if (operation.over) return;  // else another rank has begun a piece of it in the meantime
      }
    }
    if (Clock::now() >= until) {
      fmt::print(stderr, "rank {} cannot take {} back from MPI; the process ends\n", world_.rank, operation.title());
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
  look_around();
  if (files_) files_->tidy();
  return more;
}

}  // namespace lockstep::mpi
