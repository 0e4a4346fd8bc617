// One epoch: the ranks that belong together, from when they join until one of them fails or all have left.
//
// The coordinator's knowledge, without its sockets. Input: joins, frames and lost connections. Output: frames to ranks,
// through `send`, which must not call back. All ranks of an epoch have joined before any is welcomed. The first thing
// that goes wrong is the epoch's failure; every rank that is connected is told, with the same message, and nothing
// after it counts. Values (put, get) and barriers belong to the epoch and end with it. A frame that makes no sense is a
// CommError, after which the caller gives up the connection and calls lost(). One thread at a time.
#pragma once
#include <functional>
#include <map>
#include <set>

#include "comm/control/calls.h"
#include "comm/control/socket.h"

namespace lockstep::control {

inline constexpr double kLongRound = 0.2;  // seconds: the process was stopped, or the machine is very busy

// Ranks speak at least ten times in the time after which silence is a failure.
inline double heartbeat_interval(double deadline) { return std::min(1.0, deadline / 10); }

class Membership {
 public:
  using Send = std::function<void(int rank, FrameType type, std::string payload)>;
  static constexpr std::size_t kMostKeys = 8 * kMostRanks, kMostStored = 64 << 20, kMostWaiting = 64;

  Membership(std::uint32_t number, int size, Send send);

  std::uint32_t number() const { return number_; }
  int size() const { return static_cast<int>(members_.size()); }
  bool complete() const { return complete_; }
  const std::optional<CommFailure>& failure() const { return failure_; }
  bool empty() const;  // nobody is there, or there any more

  // Why this rank may not join; "" when it has.
  std::string why_not(const Join& join) const;
  void join(const Join& join);
  void welcome_if_complete();  // after the last who joined can be sent to

  void hear(int rank) { at(rank).heard = Clock::now(); }
  void excuse(double silence);  // of all ranks: nobody listened for this many seconds
  void take(int rank, const Frame& frame);
  void lost(int rank, const std::string& how);  // "closed its connection"
  void fail(const CommFailure& failure);
  void tick();  // what the passing of time brings: heartbeats, deadlines

 private:
  struct Member {
    enum class State : std::uint8_t { absent, here, left, lost };
    State state = State::absent;
    Join join = {};
    Clock::time_point joined = {}, heard = {}, greeted = {};
  };
  struct Waiting {
    int rank;
    Ask ask;
    Clock::time_point until;
  };

  Member& at(int rank) { return members_[static_cast<std::size_t>(rank)]; }
  std::string who(int rank) const;
  void answer(int rank, const Ask& ask);
  void put(int rank, const Ask& ask);
  void reach(int rank, const Ask& ask);
  void leave(int rank);
  void reply(int rank, const Ask& ask, bool well, const std::string& value);
  void expire(Clock::time_point now);
  std::string missing_words(const Ask& ask) const;
  void fail_if(const Calls::Verdict& verdict) {
    if (verdict) fail(*verdict);
  }

  const std::uint32_t number_;
  const Send send_;
  std::vector<Member> members_;
  bool complete_ = false;
  std::optional<CommFailure> failure_;
  Calls calls_;
  std::map<std::string, std::string> values_;
  std::size_t stored_ = 0;
  std::vector<Waiting> waiting_;
};

// "rank 3", "ranks 2 and 5", "ranks 1, 2 and 3".
std::string name_ranks(const std::vector<int>& ranks);

}  // namespace lockstep::control
