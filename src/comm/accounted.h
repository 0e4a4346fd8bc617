// A communicator that accounts for its rank: how long it waits for messages, how many it sends, and how long some are
// under way, by what they are for.
//
// It wraps any backend; the groups split from it are accounted for in the same books. What is counted as sent is what
// the recorder counts (comm/traffic.h). Lighter than a recorder (comm/recorder.h), for every step of every run: nothing
// is kept of single messages. Used by the thread of its rank alone.
#pragma once
#include <array>
#include <chrono>
#include <functional>

#include "comm/communicator.h"
#include "comm/sequence.h"
#include "telemetry/doing.h"
#include "telemetry/time_account.h"

namespace lockstep {

// Messages that a rank has sent or received something in.
struct MessageCount {
  std::int64_t calls = 0;
  std::int64_t bytes_sent = 0;
  bool operator==(const MessageCount&) const = default;
};

// The time in which at least one message is under way: from its start until it was waited for, or seen to be done.
class TimeUnderWay {
 public:
  void begin() {
    if (messages_++ == 0) since_ = Clock::now();
  }
  void end() {
    if (--messages_ == 0) total_ += Clock::now() - since_;
  }
  // Seconds since it was last asked, of messages that have ended.
  double take() { return std::chrono::duration<double>(std::exchange(total_, {})).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  std::int64_t messages_ = 0;
  Clock::time_point since_{};
  Clock::duration total_{};
};

struct CommAccount {
  TimeAccount* time = nullptr;                      // none: neither waits nor messages are timed
  Doing* doing = nullptr;                           // none: nobody is told which call holds the rank
  std::array<MessageCount, kTimeUses> tensors{};    // by what waiting for them is
  std::array<TimeUnderWay, kTimeUses> under_way{};  // likewise, of tensors
  MessageCount numbers;                             // (comm/traffic.h)
  bool times_messages = true;                       // false: their time on the host is not theirs
  bool paused = false;                              // messages pass as if nobody counted
};

class Accounted final : public Communicator {
 public:
  // What waiting in a group is, by its name.
  using UseOf = std::function<TimeUse(const std::string& group)>;

  // The account outlives this and every group split from it; so does a communicator that is not owned.
  Accounted(Communicator& inner, CommAccount& account, const UseOf& use_of);
  Accounted(std::unique_ptr<Communicator> inner, CommAccount& account, const UseOf& use_of);

  Started start(const Message& message) override;
  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override;
  void check() override { inner_.check(); }
  std::unique_ptr<Memory> memory(Ledger& ledger) override { return inner_.memory(ledger); }

 private:
  std::unique_ptr<Communicator> owned_;
  Communicator& inner_;
  CommAccount& account_;
  const UseOf use_of_;
  const TimeUse use_;
  const char* const group_;  // its name, which stays
  Sequence sequence_;
};

}  // namespace lockstep
