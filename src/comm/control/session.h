// A rank's membership of an epoch (comm/control/coordinator.h): it joins, is heard from, and hears of the others' end.
//
// The constructor connects, trying again until the deadline since the coordinator may start later, proves the token and
// has it proved (from then on all that travels is sealed), joins, and returns when all ranks of the epoch have come; or
// throws CommError that says who has not, or why this rank may not join (UserError where the options make no sense by
// themselves). From then on a thread of its own speaks for the rank at least ten times a deadline (once a second where
// that is more often), whatever the rank computes.
//
// The first failure of the epoch ends it for all ranks: failed() is true, and everything here throws the same words as
// a CommError, which is secondary on the ranks that did not cause it. A failure is: a rank's fail(), a connection
// closed without leave(), a rank or the coordinator not heard from for the rank's deadline, calls that do not match,
// a rank that has left while others wait for it. A new epoch is a new Session, with the next number.
//
// Records (report) are queued and sent in batches some 20 ms later: the caller only takes a mutex. Where the
// coordinator does not read, at most kMostQueued are kept, the latest. All functions may be called from any thread. The
// destructor does not throw, takes half a second at most, and without a leave() before it is a failure for the others.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "comm/control/connector.h"
#include "comm/control/rank_state.h"

namespace lockstep::control {

struct SessionOptions {
  std::string address = "127.0.0.1";
  int port = 0;
  std::string token = {};
  int rank = 0;
  int size = 1;
  std::uint32_t epoch = 1;
  double deadline_seconds = 30;  // of joining, of silence, of everything asked; 0.05 s to a day
};

class Session {
 public:
  static constexpr std::size_t kMostQueued = 8192;

  explicit Session(SessionOptions options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  std::uint32_t epoch() const { return options_.epoch; }
  double deadline() const { return options_.deadline_seconds; }

  // Small values by name, of any bytes, put once and there for the epoch: a key of up to 256 characters, 64 KiB.
  void put(const std::string& key, const std::string& value);
  std::string get(const std::string& key) { return get(key, deadline()); }
  std::string get(const std::string& key, double deadline_seconds);
  // Returns when every rank of the epoch is in the barrier of that name.
  void barrier(const std::string& name) { barrier(name, deadline()); }
  void barrier(const std::string& name, double deadline_seconds);

  // A group whose calls will be reported; the ranks are of the world. The key is the group's alone, and the same on all
  // its ranks, the name is for words. The number is this rank's name of it in records.
  std::uint32_t open_group(const std::string& key, const std::string& name, std::vector<int> members);
  void close_group(std::uint32_t group) noexcept;
  // A key for a communicator of all ranks: the first, the second, … of this session.
  std::string next_world_key();
  void report(Record record);
  std::size_t queued() const {  // records that wait to be sent
    const Lock lock(mutex_);
    return records_.size();
  }
  // Who has not come to the operation, as far as the coordinator knows.
  std::string whereabouts(const Record& about);

  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  void check() const {  // throws the epoch's failure, if there is one
    if (failed()) throw_failure();
  }
  // Whether the epoch has failed, now or within that time.
  bool fails_within(double at_most_seconds) const;

  // This rank has failed, for this reason: the others throw "rank 3 (…) has failed: <reason>".
  void fail(const std::string& reason) noexcept { end_epoch({reason, true}); }
  // The epoch has failed, as this rank has found: all throw these words.
  void fail_all(const std::string& words) noexcept { end_epoch({words, false}); }
  // This rank is done: returns when the coordinator knows, or is not there. Nothing may follow it.
  void leave();

 private:
  using Lock = std::unique_lock<std::mutex>;

  TcpStream connect(const Token& token, Clock::time_point deadline) const;
  std::string ask(Ask::Kind kind, const std::string& name, std::string value, double deadline_seconds);
  void enqueue(FrameType type, std::string payload);  // the mutex is held
  void flush_records();                               // the mutex is held
  void end_epoch(CommFailure failure) noexcept;
  void set_failure(CommFailure failure);
  [[noreturn]] void throw_failure() const;
  std::string coordinator() const;

  void run();
  bool round();
  void take(const Frame& frame);
  std::vector<Frame> take_outgoing();

  const SessionOptions options_;
  TcpStream stream_;  // the thread's own, from when it is started
  const Waker waker_;
  std::atomic<bool> stop_ = false, failed_ = false;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  RankState state_;
  std::uint32_t asked_ = 0, groups_ = 0, worlds_ = 0;
  std::deque<Record> records_;
  std::vector<Frame> outgoing_;   // after which the records go
  Clock::time_point heard_ = {};  // from the coordinator; the thread's own
  Clock::time_point spoke_ = {};

  std::jthread thread_;  // joined first; the constructor may throw once it runs
};

}  // namespace lockstep::control
