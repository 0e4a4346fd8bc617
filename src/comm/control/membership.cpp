#include "comm/control/membership.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>

#include "comm/failure_text.h"

namespace lockstep::control {

std::string name_ranks(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks[0]);
  return fmt::format("ranks {} and {}", fmt::join(ranks.begin(), ranks.end() - 1, ", "), ranks.back());
}

Membership::Membership(std::uint32_t number, int size, Send send)
    : number_(number), send_(std::move(send)), members_(static_cast<std::size_t>(size)), calls_(size) {}

bool Membership::empty() const {
  return std::none_of(members_.begin(), members_.end(), [](const Member& m) { return m.state == Member::State::here; });
}

std::string Membership::who(int rank) const {
  const Join& join = members_[static_cast<std::size_t>(rank)].join;
  return fmt::format("rank {} (host {}, process {})", rank, join.host, join.process);
}

std::string Membership::why_not(const Join& join) const {
  if (failure_) return fmt::format("epoch {} is over ({}); join epoch {}", number_, failure_->what, number_ + 1);
  if (join.size != size())
    return fmt::format("rank {} joins a world of {} ranks, the others one of {}; start all with the same size",
                       join.rank, join.size, size());
  if (join.rank < 0 || join.rank >= size())
    return fmt::format("rank {} is none of a world of {} ranks; they are 0 to {}", join.rank, size(), size() - 1);
  if (members_[static_cast<std::size_t>(join.rank)].state != Member::State::absent)
    return fmt::format("{} has joined already; give every process a rank of its own", who(join.rank));
  return "";
}

void Membership::join(const Join& join) {
  const auto now = Clock::now();
  at(join.rank) = {Member::State::here, join, now, now, now};
}

void Membership::welcome_if_complete() {
  if (complete_ || failure_ ||
      !std::all_of(members_.begin(), members_.end(), [](const Member& m) { return m.state == Member::State::here; }))
    return;
  complete_ = true;
  Welcome welcome;
  const std::string host = host_name();
  for (int rank = 0; rank < size() && welcome.host_rank < 0; ++rank)
    if (at(rank).join.host == host && at(rank).join.process == static_cast<std::uint32_t>(::getpid()))
      welcome = {rank, who(rank)};
  for (int rank = 0; rank < size(); ++rank) send_(rank, FrameType::welcome, welcome.encode());
}

void Membership::excuse(double silence) {
  for (Member& member : members_) member.heard += seconds(silence);
}

void Membership::take(int rank, const Frame& frame) {
  if (frame.type == FrameType::heartbeat) return;
  if (frame.type == FrameType::failed) {
    const CommFailure failure = decode_failure(frame.payload);
    // Its own failure is told by itself, too; what it says of others is told by nobody else.
    return fail(failure.secondary ? CommFailure{fmt::format("{} has failed: {}", who(rank), failure.what), true}
                                  : failure);
  }
  if (!complete_) throw CommError("a frame from a rank that was not welcomed yet");
  if (frame.type == FrameType::ask) return answer(rank, Ask::decode(frame.payload));
  if (failure_) return;  // what was on its way
  if (frame.type == FrameType::open_group) {
    fail_if(calls_.open(rank, GroupSpec::decode(frame.payload)));
  } else if (frame.type == FrameType::close_group) {
    Reader reader(frame.payload);
    const auto id = reader.number<std::uint32_t>();
    reader.end();
    fail_if(calls_.close(rank, id));
  } else if (frame.type == FrameType::records) {
    fail_if(calls_.note(rank, decode_records(frame.payload)));
  } else {
    throw CommError(fmt::format("a frame of type {} from a rank", static_cast<int>(frame.type)));
  }
}

void Membership::answer(int rank, const Ask& ask) {
  if (failure_ && ask.kind != Ask::Kind::leave) return reply(rank, ask, false, failure_->what);
  switch (ask.kind) {
    case Ask::Kind::put:
      return put(rank, ask);
    case Ask::Kind::get:
      if (const auto at = values_.find(ask.name); at != values_.end()) return reply(rank, ask, true, at->second);
      break;
    case Ask::Kind::barrier:
      return reach(rank, ask);
    case Ask::Kind::whereabouts: {
      Reader reader(ask.value);
      const Record about = Record::decode(reader);
      reader.end();
      return reply(rank, ask, true,
                   calls_.whereabouts(rank, about, [this](int other) { return seconds_since(at(other).heard); }));
    }
    case Ask::Kind::leave:
      leave(rank);
      return reply(rank, ask, true, "");
  }
  if (std::count_if(waiting_.begin(), waiting_.end(), [&](const Waiting& w) { return w.rank == rank; }) >=
      static_cast<std::ptrdiff_t>(kMostWaiting))
    return reply(rank, ask, false, fmt::format("{} asks more than {} things at once", who(rank), kMostWaiting));
  waiting_.push_back({rank, ask, Clock::now() + seconds(ask.deadline)});
}

void Membership::put(int rank, const Ask& ask) {
  if (const auto at = values_.find(ask.name); at != values_.end()) {
    const bool same = at->second == ask.value;
    return reply(rank, ask, same, same ? "" : fmt::format("'{}' has another value already", ask.name));
  }
  if (values_.size() >= kMostKeys || stored_ + ask.value.size() > kMostStored)
    return reply(
        rank, ask, false,
        fmt::format("there is no room for '{}' after {} values of {} bytes", ask.name, values_.size(), stored_));
  values_[ask.name] = ask.value;
  stored_ += ask.value.size();
  reply(rank, ask, true, "");
  std::erase_if(waiting_, [&](const Waiting& w) {
    if (w.ask.kind != Ask::Kind::get || w.ask.name != ask.name) return false;
    reply(w.rank, w.ask, true, ask.value);
    return true;
  });
}

void Membership::reach(int rank, const Ask& ask) {
  const auto same = [&](const Waiting& w) { return w.ask.kind == Ask::Kind::barrier && w.ask.name == ask.name; };
  int arrived = 1;
  for (const Waiting& w : waiting_) {
    if (!same(w)) continue;
    if (w.rank == rank) return reply(rank, ask, false, fmt::format("{} is in '{}' already", who(rank), ask.name));
    ++arrived;
  }
  waiting_.push_back({rank, ask, Clock::now() + seconds(ask.deadline)});
  if (arrived == size()) {
    std::erase_if(waiting_, [&](const Waiting& w) {
      if (!same(w)) return false;
      reply(w.rank, w.ask, true, "");
      return true;
    });
    return;
  }
  for (int other = 0; other < size(); ++other)
    if (at(other).state == Member::State::left)
      return fail({will_not_come_text(fmt::format("barrier '{}'", ask.name), other, kHasEnded), true});
}

void Membership::leave(int rank) {
  if (at(rank).state != Member::State::here) return;
  at(rank).state = Member::State::left;
  std::erase_if(waiting_, [&](const Waiting& w) { return w.rank == rank; });
  if (failure_) return;
  for (const Waiting& w : waiting_)
    if (w.ask.kind == Ask::Kind::barrier)
      return fail({will_not_come_text(fmt::format("barrier '{}'", w.ask.name), rank, kHasEnded), true});
  fail_if(calls_.end(rank));
}

void Membership::reply(int rank, const Ask& ask, bool well, const std::string& value) {
  send_(rank, FrameType::reply, Reply{ask.number, well, value}.encode());
}

void Membership::lost(int rank, const std::string& how) {
  if (at(rank).state != Member::State::here) return;
  at(rank).state = Member::State::lost;
  std::erase_if(waiting_, [&](const Waiting& w) { return w.rank == rank; });
  fail({fmt::format("{} {}", who(rank), how)});
}

void Membership::fail(const CommFailure& failure) {
  if (failure_) return;
  failure_ = failure;
  waiting_.clear();
  for (int rank = 0; rank < size(); ++rank)
    if (at(rank).state == Member::State::here) send_(rank, FrameType::failed, encode_failure(*failure_));
}

void Membership::tick() {
  const auto now = Clock::now();
  std::vector<int> absent;
  for (int rank = 0; rank < size(); ++rank)
    if (at(rank).state == Member::State::absent) absent.push_back(rank);
  for (int rank = 0; rank < size(); ++rank) {
    Member& member = at(rank);
    if (member.state != Member::State::here) continue;
    const double deadline = member.join.deadline;
    if (now - member.greeted >= seconds(heartbeat_interval(deadline))) {
      member.greeted = now;
      send_(rank, FrameType::heartbeat, "");
    }
    if (failure_) continue;
    if (!complete_ && now - member.joined >= seconds(deadline)) {
      fail({fmt::format("{} of {} {} not come within {} s; start them, with this address and epoch {}",
                        name_ranks(absent), size(), has_or_have(absent.size()), deadline, number_)});
    } else if (now - member.heard >= seconds(deadline)) {
      fail({fmt::format("{} has not been heard from for {:.1f} s", who(rank), seconds_since(member.heard))});
    }
  }
  expire(now);
}

void Membership::expire(Clock::time_point now) {
  // Who waits in a barrier hears with the first whose time has passed: later nobody would know that that one had come.
  const auto with = [](const Waiting& a, const Waiting& b) {
    return a.ask.kind == Ask::Kind::barrier && b.ask.kind == Ask::Kind::barrier && a.ask.name == b.ask.name;
  };
  std::vector<Waiting> over;
  for (const Waiting& w : waiting_)
    if (now >= w.until || std::any_of(waiting_.begin(), waiting_.end(),
                                      [&](const Waiting& first) { return now >= first.until && with(first, w); }))
      over.push_back(w);
  for (const Waiting& w : over) reply(w.rank, w.ask, false, missing_words(w.ask));
  std::erase_if(waiting_, [&](const Waiting& w) {
    return std::any_of(over.begin(), over.end(),
                       [&](const Waiting& o) { return o.rank == w.rank && o.ask.number == w.ask.number; });
  });
}

std::string Membership::missing_words(const Ask& ask) const {
  if (ask.kind == Ask::Kind::get) return fmt::format("nobody has put '{}' within {} s", ask.name, ask.deadline);
  std::vector<int> missing;
  for (int rank = 0; rank < size(); ++rank)
    if (std::none_of(waiting_.begin(), waiting_.end(), [&](const Waiting& w) {
          return w.rank == rank && w.ask.kind == Ask::Kind::barrier && w.ask.name == ask.name;
        }))
      missing.push_back(rank);
  return fmt::format("barrier '{}': {} {} not come within {} s", ask.name, name_ranks(missing),
                     has_or_have(missing.size()), ask.deadline);
}

}  // namespace lockstep::control
