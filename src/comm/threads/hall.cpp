#include "comm/threads/hall.h"

#include <algorithm>
#include <numeric>
#include <thread>

namespace lockstep::threads {

namespace {
constexpr std::int64_t kSmallBytes = 1 << 16;          // moved in less time than it takes to wake a thread
constexpr auto kSpin = std::chrono::microseconds(40);  // before it sleeps, a thread that can have a core looks about
constexpr auto kPure = std::chrono::microseconds(4);   // of it without offering the core to others
}  // namespace

Hall::Hall(int ranks, double deadline_seconds, int helpers)
    : deadline_(deadline_seconds),
      helpers_(helpers),
      spins_(ranks <= static_cast<int>(std::thread::hardware_concurrency())),
      world_{.name = "world", .members = std::vector<int>(ranks)} {
  std::iota(world_.members.begin(), world_.members.end(), 0);
  world_.joined.resize(ranks);
  world_.left.resize(ranks);
  world_.splits.resize(ranks);
  seen_.resize(ranks);
  ended_.resize(ranks);
}

void Hall::join(Group& group, int rank) {
  const Lock lock(mutex_);
  LOCKSTEP_CHECK(!group.joined[rank], "rank {} of '{}' has its communicator already", rank, group.name);
  group.joined[rank] = true;
}

void Hall::leave(Group& group, int rank) noexcept {
  const Lock lock(mutex_);
  group.left[rank] = true;
  each_group(group, [&](Group& g) { fail_if_someone_is_gone(g); });
}

Group& Hall::divide(Group& group, int rank, int color, std::vector<int> members, const std::string& name) {
  const Lock lock(mutex_);
  for (int& member : members) member = group.members[member];
  std::unique_ptr<Group>& part = group.parts[{++group.splits[rank], color}];
  if (!part) {
    const std::size_t size = members.size();
    part = std::make_unique<Group>(Group{.name = name, .members = std::move(members), .parent = &group});
    part->joined.resize(size);
    part->left.resize(size);
    part->splits.resize(size);
    part->failure = aborted_;
  } else if (part->members != members || part->name != name) {
    const Failure failure{fmt::format(
        "rank {} divides '{}' into a '{}' of {} ranks, the others into a '{}' of {} ranks, or of other ranks",
        group.members[rank], group.name, name, members.size(), part->name, part->members.size())};
    fail(*part, failure);
    fail(group, failure);
    throw CommError(failure.what);
  }
  return *part;
}

void Hall::carry_on(Group& group, Device device) {
  const Lock lock(mutex_);
  if (!group.carrier) group.carrier = std::make_unique<Carrier>(device);
  LOCKSTEP_CHECK(group.carrier->device() == device, "ranks of '{}' on {} and on {}", group.name,
                 name_of(group.carrier->device()), name_of(device));
}

Meeting* Hall::arrive(Group& group, int rank, const Call& call, Failure& failure) {
  const auto& [message, sequence, ready] = call;
  Lock lock(mutex_);
  const int world_rank = group.members[rank];
  seen_[world_rank] = {&group, message.op, sequence, false};
  if (group.failure) {
    failure = *group.failure;
    return nullptr;
  }
  const bool pair = point_to_point(message.op), sends = message.op == CommOp::send;
  const std::pair<int, int> ends = sends ? std::pair(rank, message.peer) : std::pair(message.peer, rank);
  Channel& channel = pair ? group.pairs[ends] : group.collectives;
  std::unique_ptr<Meeting>& place = channel.meetings[sequence];
  if (!place) {
    std::vector<int> ranks = {ends.first, ends.second};
    if (!pair) {
      ranks.resize(group.members.size());
      std::iota(ranks.begin(), ranks.end(), 0);
    }
    const std::size_t count = ranks.size();
    place = std::make_unique<Meeting>(Meeting{group, channel, sequence, std::move(ranks), {}});
    place->calls.resize(count);
  }
  Meeting& meeting = *place;
  const std::size_t mine = pair ? (sends ? 0 : 1) : static_cast<std::size_t>(rank);
  if (ready) meeting.ready.push_back(ready);
  meeting.calls[mine] = message;
  ++meeting.arrived;
  ++meeting.holders;
  if (!fits(meeting, mine)) return &meeting;
  fail_if_someone_is_gone(group);
  if (meeting.state == Meeting::State::gathering && meeting.complete() && channel.next == sequence) {
    begin(meeting);
    if (meeting.plan.bytes() > kSmallBytes)
      wake_some(meeting);
    else
      while (meeting.has_work()) run_piece(meeting, rank, lock);
  }
  return &meeting;
}

// The newcomer's call is the one that the first to come made; if not, the group fails for all of its ranks.
bool Hall::fits(Meeting& meeting, std::size_t newcomer) {
  const int ranks = static_cast<int>(meeting.group.members.size());
  const auto name = [&](std::size_t i) { return meeting.group.members[meeting.ranks[i]]; };
  for (std::size_t i = 0; i < meeting.calls.size(); ++i) {
    if (i == newcomer || !meeting.calls[i]) continue;
    if (agree(*meeting.calls[i], *meeting.calls[newcomer], ranks)) break;
    const std::size_t low = std::min(i, newcomer), high = std::max(i, newcomer);
    fail(meeting.group,
         {fmt::format("mismatched calls at #{} of '{}': rank {} called {}, rank {} called {}", meeting.sequence,
                      meeting.group.name, name(low), describe(*meeting.calls[low], ranks), name(high),
                      describe(*meeting.calls[high], ranks))});
    return false;
  }
  if (!meeting.ready.empty() && static_cast<int>(meeting.ready.size()) != meeting.arrived) {
    fail(meeting.group, {fmt::format("mismatched calls at #{} of '{}': some ranks compute in streams, others do not",
                                     meeting.sequence, meeting.group.name)});
    return false;
  }
  if (!meeting.complete() || meeting.calls[0]->op != CommOp::all_to_all) return true;
  for (int to = 0; to < ranks; ++to) {  // what each rank has room for is what the others give it
    std::int64_t given = 0;
    for (const auto& call : meeting.calls)
      given += call->counts.empty() ? call->in.elements() / ranks : call->counts[to];
    const std::int64_t room = meeting.calls[to]->out.elements();
    if (room == given) continue;
    fail(meeting.group, {fmt::format("mismatched calls at #{} of '{}': rank {} has room for {} elements of an "
                                     "all_to_all in which the ranks together give it {}",
                                     meeting.sequence, meeting.group.name, name(to), room, given)});
    return false;
  }
  return true;
}

void Hall::begin(Meeting& meeting) {
  std::vector<Message> calls;
  for (std::optional<Message>& call : meeting.calls) calls.push_back(*call);
  meeting.plan = Plan(calls);
  if (meeting.in_stream()) meeting.plan.make_whole();
  meeting.state = Meeting::State::running;
  if (meeting.plan.pieces() > 0)
    work_.push_back(&meeting);
  else
    end_of(meeting);
}

// It is over, and the turn of the next in its channel.
void Hall::end_of(Meeting& meeting) {
  if (meeting.failure.what.empty()) {
    meeting.state = Meeting::State::done;
  } else {
    meeting.state = Meeting::State::failed;
    fail(meeting.group, meeting.failure);
  }
  wake_all(meeting);
  Channel& channel = meeting.channel;
  const auto next = channel.meetings.find(++channel.next);
  if (next == channel.meetings.end()) return;
  if (next->second->state != Meeting::State::gathering || !next->second->complete()) return;
  begin(*next->second);
  if (next->second->has_work()) wake_some(*next->second);
}

void Hall::run_piece(Meeting& meeting, int rank, Lock& lock) {
  const std::int64_t piece = rank % 2 == 0 ? meeting.first++ : meeting.plan.pieces() - ++meeting.last;
  if (!meeting.has_work()) work_.remove(&meeting);
  lock.unlock();
  std::string problem;
  try {
    if (meeting.in_stream())
      meeting.carried = meeting.group.carrier->run(meeting.plan, meeting.ready);
    else
      meeting.plan.run(piece);
  } catch (const std::exception& error) {
    problem = error.what();
  }
  lock.lock();
  if (!problem.empty()) meeting.failure = {title(meeting) + ": " + problem};
  if (++meeting.finished == meeting.plan.pieces()) end_of(meeting);
}

Meeting* Hall::find_work(Meeting& first) {
  if (first.has_work()) return &first;
  return work_.empty() ? nullptr : work_.front();
}

bool Hall::ask(Meeting& meeting, int rank, Clock::time_point deadline) {
  Lock lock(mutex_);
  if (meeting.over()) return true;
  if (Meeting* work = find_work(meeting))
    run_piece(*work, rank, lock);
  else if (meeting.state == Meeting::State::gathering && Clock::now() >= deadline)
    fail_late(meeting);
  return meeting.over();
}

void Hall::wait(Meeting& meeting, int rank, Clock::time_point deadline) {
  Lock lock(mutex_);
  while (!meeting.over()) {
    if (Meeting* work = find_work(meeting)) {
      run_piece(*work, rank, lock);
    } else if (meeting.state == Meeting::State::running) {
      sleep(meeting, lock, std::nullopt);  // others run its last pieces, which wait for nothing
    } else if (Clock::now() >= deadline) {
      fail_late(meeting);
    } else {
      sleep(meeting, lock, deadline);
    }
  }
}

std::optional<Failure> Hall::let_go(Meeting& meeting, int rank) {
  const Lock lock(mutex_);
  const std::optional<Failure> failure =
      meeting.state == Meeting::State::failed ? std::optional(meeting.failure) : std::nullopt;
  Seen& seen = seen_[meeting.group.members[rank]];
  if (seen.group == &meeting.group && seen.sequence == meeting.sequence) seen.done = !failure;
  if (--meeting.holders == 0) meeting.channel.meetings.erase(meeting.sequence);
  return failure;
}

std::shared_ptr<Event> Hall::give_up(Meeting& meeting, int rank) noexcept {
  std::shared_ptr<Event> carried;
  {
    Lock lock(mutex_);
    if (meeting.state == Meeting::State::gathering)
      fail(meeting.group,
           {fmt::format("rank {} went away from {} before it was done", meeting.group.members[rank], title(meeting)),
            true});
    while (!meeting.over()) {
      if (meeting.has_work())
        run_piece(meeting, rank, lock);
      else
        sleep(meeting, lock, std::nullopt);
    }
    carried = meeting.carried;
  }
  let_go(meeting, rank);
  return carried;
}

void Hall::sleep(Meeting& awaited, Lock& lock, std::optional<Clock::time_point> until) {
  Sleeper self{&awaited, {}};
  const auto place = sleepers_.insert(sleepers_.end(), &self);
  const auto woken = [&] { return self.awaited == nullptr; };
  if (spins_) {
    lock.unlock();
    const Clock::time_point began = Clock::now();
    for (auto spun = Clock::duration(0); spun < kSpin && !woken(); spun = Clock::now() - began) {
      if (spun < kPure)
        __builtin_ia32_pause();
      else
        std::this_thread::yield();  // who is waited for may want this very core
    }
    lock.lock();
  }
  if (!until) {
    self.wake.wait(lock, woken);
  } else if (!self.wake.wait_until(lock, *until, woken)) {
    sleepers_.erase(place);
  }
}

// As many threads as have work and a core. Those that wait for this very meeting first: they cannot go before it is
// over, so that one of them is enough for it to end.
void Hall::wake_some(Meeting& meeting) {
  std::int64_t wanted = std::min<std::int64_t>(meeting.unclaimed(), helpers_);
  for (const bool its_own : {true, false})
    for (auto at = sleepers_.begin(); at != sleepers_.end() && wanted > 0;) {
      Sleeper& sleeper = **at;
      if ((sleeper.awaited == &meeting) != its_own) {
        ++at;
        continue;
      }
      sleeper.awaited = nullptr;
      sleeper.wake.notify_one();
      at = sleepers_.erase(at);
      --wanted;
    }
}

void Hall::wake_all(const Meeting& meeting) {
  for (auto at = sleepers_.begin(); at != sleepers_.end();) {
    Sleeper& sleeper = **at;
    if (sleeper.awaited != &meeting) {
      ++at;
      continue;
    }
    sleeper.awaited = nullptr;
    sleeper.wake.notify_one();
    at = sleepers_.erase(at);
  }
}

}  // namespace lockstep::threads
