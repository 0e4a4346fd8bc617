// What the system tells of a thread's share of the cores and of a process's share of the memory.
//
// Read from /proc, a few microseconds each. Nothing where the system does not tell. Any thread may ask.
#pragma once
#include <cstdint>
#include <deque>
#include <optional>

#include "telemetry/rank_now.h"

namespace lockstep {

std::int64_t this_thread_id();
// Since the thread began. One that has ended: nothing.
std::optional<RankCpu> cpu_of_thread(std::int64_t thread);
// What this process holds of its own, in memory or swapped out, without files that are mapped; in bytes.
std::optional<std::int64_t> held_by_process();
// Of this process: resident bytes of what the host or a control group allows, or bytes of data or addresses of what
// ulimit allows, whichever is nearest to its limit.
std::optional<RankMemory> memory_of_process();

// What is both taken and given back (rank_now.h), from the last kLooks looks. A rise alone is none: a process takes
// what it needs once.
class MemorySwing {
 public:
  static constexpr std::size_t kLooks = 60;
  void look(std::int64_t held) {
    looks_.push_back(held);
    if (looks_.size() > kLooks) looks_.pop_front();
  }
  std::int64_t bytes() const;

 private:
  std::deque<std::int64_t> looks_;
};

}  // namespace lockstep
