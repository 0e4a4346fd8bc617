#include "comm/threads/rendezvous.h"

#include <algorithm>
#include <numeric>

#include "comm/failure_text.h"

namespace lockstep::threads {

namespace {
constexpr std::int64_t kSmallBytes = 1 << 16;  // moved in less time than it takes to wake a thread
}  // namespace

Rendezvous::Rendezvous(int ranks, double deadline_seconds, int helpers)
    : deadline_(deadline_seconds),
      helpers_(helpers),
      spins_(waiting::may_spin(ranks)),
      world_{.name = "world", .members = std::vector<int>(ranks)} {
  std::iota(world_.members.begin(), world_.members.end(), 0);
  world_.joined.resize(ranks);
  world_.left.resize(ranks);
  world_.splits.resize(ranks);
  last_calls_.resize(ranks);
  ended_.resize(ranks);
}

void Rendezvous::join(ThreadGroup& group, int rank) {
  const Lock lock(mutex_);
  LOCKSTEP_CHECK(!group.joined[rank], "rank {} of '{}' has its communicator already", rank, group.name);
  group.joined[rank] = true;
}

void Rendezvous::leave(ThreadGroup& group, int rank) noexcept {
  const Lock lock(mutex_);
  group.left[rank] = true;
  each_group(group, [&](ThreadGroup& g) { fail_if_someone_is_gone(g); });
}

ThreadGroup& Rendezvous::split(ThreadGroup& group, int rank, int color, std::vector<int> members,
                               const std::string& name) {
  const Lock lock(mutex_);
  for (int& member : members) member = group.members[member];
  std::unique_ptr<ThreadGroup>& part = group.parts[{++group.splits[rank], color}];
  if (!part) {
    const std::size_t size = members.size();
    part = std::make_unique<ThreadGroup>(ThreadGroup{.name = name, .members = std::move(members), .parent = &group});
    part->joined.resize(size);
    part->left.resize(size);
    part->splits.resize(size);
    part->failure = aborted_;
  } else if (part->members != members || part->name != name) {
    const CommFailure failure{different_splits_text(group.members[rank], group.name, {name, members.size()},
                                                    {part->name, part->members.size()})};
    fail(*part, failure);
    fail(group, failure);
    failure.raise();
  }
  return *part;
}

void Rendezvous::run_in_stream(ThreadGroup& group, Device device) {
  const Lock lock(mutex_);
  if (!group.stream) group.stream = std::make_unique<GroupStream>(device);
  LOCKSTEP_CHECK(group.stream->device() == device, "ranks of '{}' on {} and on {}", group.name,
                 name_of(group.stream->device()), name_of(device));
}

PendingOperation* Rendezvous::arrive(ThreadGroup& group, int rank, const Call& call, CommFailure& failure) {
  const auto& [message, sequence, ready] = call;
  Lock lock(mutex_);
  const int world_rank = group.members[rank];
  last_calls_[world_rank] = {&group, message.op, sequence, false};
  if (group.failure) {
    failure = *group.failure;
    return nullptr;
  }
  const bool pair = point_to_point(message.op), sends = message.op == CommOp::send;
  const std::pair<int, int> ends = sends ? std::pair(rank, message.peer) : std::pair(message.peer, rank);
  OperationQueue& queue = pair ? group.pairs[ends] : group.collectives;
  std::unique_ptr<PendingOperation>& place = queue.operations[sequence];
  if (!place) {
    std::vector<int> ranks = {ends.first, ends.second};
    if (!pair) {
      ranks.resize(group.members.size());
      std::iota(ranks.begin(), ranks.end(), 0);
    }
    const std::size_t count = ranks.size();
    place = std::make_unique<PendingOperation>(PendingOperation{group, queue, sequence, std::move(ranks), {}});
    place->calls.resize(count);
  }
  PendingOperation& operation = *place;
  const std::size_t mine = pair ? (sends ? 0 : 1) : static_cast<std::size_t>(rank);
  if (ready) operation.ready.push_back(ready);
  operation.calls[mine] = message;
  ++operation.arrived;
  ++operation.holders;
  if (!matches(operation, mine)) return &operation;
  fail_if_someone_is_gone(group);
  if (operation.state == PendingOperation::State::waiting && operation.complete() && queue.next == sequence) {
    begin(operation);
    if (operation.plan.bytes() > kSmallBytes)
      wake_some(operation);
    else
      while (operation.has_work()) run_piece(operation, rank, lock);
  }
  return &operation;
}

// The latest call is the one that the first rank to arrive made; if not, the group fails for all of its ranks.
bool Rendezvous::matches(PendingOperation& operation, std::size_t latest) {
  const ThreadGroup& group = operation.group;
  const int ranks = static_cast<int>(group.members.size());
  const auto mismatch = [&](const std::string& how) {
    fail(operation.group, {mismatch_text(operation.sequence, group.name, how)});
    return false;
  };
  const auto call_of = [&](std::size_t i) { return RankCall{group.members[operation.ranks[i]], *operation.calls[i]}; };
  for (std::size_t i = 0; i < operation.calls.size(); ++i) {
    if (i == latest || !operation.calls[i]) continue;
    if (agree(*operation.calls[i], *operation.calls[latest], ranks)) break;
    return mismatch(different_calls_text(call_of(std::min(i, latest)), call_of(std::max(i, latest)), ranks));
  }
  if (!operation.ready.empty() && static_cast<int>(operation.ready.size()) != operation.arrived)
    return mismatch("some ranks compute in streams, others do not");
  if (!operation.complete() || operation.calls[0]->op != CommOp::all_to_all) return true;
  std::vector<const Message*> calls;
  for (const auto& call : operation.calls) calls.push_back(&*call);
  const std::string fault = all_to_all_fault(calls, group.members);
  return fault.empty() || mismatch(fault);
}

void Rendezvous::begin(PendingOperation& operation) {
  std::vector<Message> calls;
  for (std::optional<Message>& call : operation.calls) calls.push_back(*call);
  operation.plan = BufferPlan(calls);
  if (operation.in_stream()) operation.plan.make_whole();
  operation.state = PendingOperation::State::running;
  if (operation.plan.pieces() > 0)
    work_.push_back(&operation);
  else
    end_of(operation);
}

// It is over, and the turn of the next in its queue.
void Rendezvous::end_of(PendingOperation& operation) {
  if (operation.failure.what.empty()) {
    operation.state = PendingOperation::State::done;
  } else {
    operation.state = PendingOperation::State::failed;
    fail(operation.group, operation.failure);
  }
  wake_all(operation);
  OperationQueue& queue = operation.queue;
  const auto next = queue.operations.find(++queue.next);
  if (next == queue.operations.end()) return;
  if (next->second->state != PendingOperation::State::waiting || !next->second->complete()) return;
  begin(*next->second);
  if (next->second->has_work()) wake_some(*next->second);
}

void Rendezvous::run_piece(PendingOperation& operation, int rank, Lock& lock) {
  const std::int64_t piece = rank % 2 == 0 ? operation.first++ : operation.plan.pieces() - ++operation.last;
  if (!operation.has_work()) work_.remove(&operation);
  lock.unlock();
  std::string problem;
  try {
    if (operation.in_stream())
      operation.completed = operation.group.stream->run(operation.plan, operation.ready);
    else
      operation.plan.run(piece);
  } catch (const std::exception& error) {
    problem = error.what();
  }
  lock.lock();
  if (!problem.empty()) operation.failure = {title(operation) + ": " + problem};
  if (++operation.finished == operation.plan.pieces()) end_of(operation);
}

PendingOperation* Rendezvous::find_work(PendingOperation& first) {
  if (first.has_work()) return &first;
  return work_.empty() ? nullptr : work_.front();
}

bool Rendezvous::test(PendingOperation& operation, int rank, Clock::time_point deadline) {
  Lock lock(mutex_);
  if (operation.over()) return true;
  if (PendingOperation* work = find_work(operation))
    run_piece(*work, rank, lock);
  else if (operation.state == PendingOperation::State::waiting && Clock::now() >= deadline)
    fail_late(operation);
  return operation.over();
}

void Rendezvous::wait(PendingOperation& operation, int rank, Clock::time_point deadline) {
  Lock lock(mutex_);
  while (!operation.over()) {
    if (PendingOperation* work = find_work(operation)) {
      run_piece(*work, rank, lock);
    } else if (operation.state == PendingOperation::State::running) {
      sleep(operation, lock, std::nullopt);  // others run its last pieces, which wait for nothing
    } else if (Clock::now() >= deadline) {
      fail_late(operation);
    } else {
      sleep(operation, lock, deadline);
    }
  }
}

std::optional<CommFailure> Rendezvous::release(PendingOperation& operation, int rank) {
  const Lock lock(mutex_);
  const std::optional<CommFailure> failure =
      operation.state == PendingOperation::State::failed ? std::optional(operation.failure) : std::nullopt;
  LastCall& last = last_calls_[operation.group.members[rank]];
  if (last.group == &operation.group && last.sequence == operation.sequence) last.done = !failure;
  if (--operation.holders == 0) operation.queue.operations.erase(operation.sequence);
  return failure;
}

std::shared_ptr<Event> Rendezvous::abandon(PendingOperation& operation, int rank) noexcept {
  std::shared_ptr<Event> completed;
  {
    Lock lock(mutex_);
    if (operation.state == PendingOperation::State::waiting)
      fail(operation.group, {went_away_text(operation.group.members[rank], title(operation)), true});
    while (!operation.over()) {
      if (operation.has_work())
        run_piece(operation, rank, lock);
      else
        sleep(operation, lock, std::nullopt);
    }
    completed = operation.completed;
  }
  release(operation, rank);
  return completed;
}

void Rendezvous::sleep(PendingOperation& awaited, Lock& lock, std::optional<Clock::time_point> until) {
  Sleeper self{&awaited, {}};
  const auto place = sleepers_.insert(sleepers_.end(), &self);
  const auto woken = [&] { return self.awaited == nullptr; };
  if (spins_) {
    lock.unlock();
    waiting::spin_until(woken);
    lock.lock();
  }
  if (!until) {
    self.wake.wait(lock, woken);
  } else if (!self.wake.wait_until(lock, *until, woken)) {
    sleepers_.erase(place);
  }
}

// As many threads as have work and a core. Those that wait for this very operation first: they cannot go before it is
// over, so that one of them is enough for it to end.
void Rendezvous::wake_some(PendingOperation& operation) {
  std::int64_t wanted = std::min<std::int64_t>(operation.unclaimed(), helpers_);
  for (const bool its_own : {true, false})
    for (auto at = sleepers_.begin(); at != sleepers_.end() && wanted > 0;) {
      Sleeper& sleeper = **at;
      if ((sleeper.awaited == &operation) != its_own) {
        ++at;
        continue;
      }
      sleeper.awaited = nullptr;
      sleeper.wake.notify_one();
      at = sleepers_.erase(at);
      --wanted;
    }
}

void Rendezvous::wake_all(const PendingOperation& operation) {
  for (auto at = sleepers_.begin(); at != sleepers_.end();) {
    Sleeper& sleeper = **at;
    if (sleeper.awaited != &operation) {
      ++at;
      continue;
    }
    sleeper.awaited = nullptr;
    sleeper.wake.notify_one();
    at = sleepers_.erase(at);
  }
}

}  // namespace lockstep::threads
