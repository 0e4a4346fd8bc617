// One rank's record of its messages: the last ones in full, all of them in sums.
//
// Read by tests that compare messages with theory, the step's record, the planner on `meta`, and error messages. The
// last `kept` operations are stored one by one; the totals, by group, op and type, are never dropped.
// Thread-safe.
#pragma once
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "comm/traffic.h"

namespace lockstep {

struct CommRecord {
  std::string group;
  std::uint64_t sequence = 0;
  CommOp op = CommOp::barrier;
  Algorithm algorithm = Algorithm::canonical;
  DType dtype = DType::f32;
  std::int64_t count = 0;  // elements the operation is about
  std::int64_t bytes = 0;  // of them
  Traffic traffic = {};    // of this rank
  bool done = false;
  double started = 0;  // seconds since the log was made
  double ended = 0;    // when this rank learned that it was done
};

// "all_reduce #12 of 'dp', 1000 fp32, canonical: done".
std::string describe(const CommRecord& record);

struct CommTotal {
  std::int64_t calls = 0;
  std::int64_t sent = 0;  // elements
  std::int64_t received = 0;
  std::int64_t messages = 0;
  std::int64_t bytes_sent = 0;
  double seconds = 0;  // from start to done, waiting or not
  double waited = 0;   // that the caller was held in wait(): what of it nothing hid
};

class CommLog {
 public:
  using Key = std::tuple<std::string, CommOp, DType>;  // group, op, type
  using Totals = std::map<Key, CommTotal>;

  explicit CommLog(std::size_t kept = 64) : kept_(kept) {}

  // What was begun, by number; `started` is filled in.
  std::uint64_t begin(CommRecord record);
  void end(std::uint64_t number);
  // The caller was held so long by an operation of this kind, kept or not.
  void waited(const Key& key, double seconds);

  Totals totals() const;
  std::int64_t sent(CommOp op) const;  // elements, over all groups and types
  std::int64_t sent() const;
  double waited() const;  // seconds, over all of them
  std::uint64_t begun() const;
  std::vector<CommRecord> last() const;  // oldest first
  std::string last_operations(std::size_t most = 5) const;

 private:
  using Clock = std::chrono::steady_clock;
  double now() const { return std::chrono::duration<double>(Clock::now() - made_).count(); }

  const std::size_t kept_;
  const Clock::time_point made_ = Clock::now();
  mutable std::mutex mutex_;
  std::deque<CommRecord> records_;
  std::uint64_t dropped_ = 0;
  Totals totals_;
};

}  // namespace lockstep
