// How processes of one host wake each other: a bell each, in shared memory.
//
// Two threads of a process hear its bell: one that waits for an operation (`attended` while it does), else the progress
// thread. So a process whose waiter does the work itself is not also woken in its progress thread. A ring is never
// lost: who is about to sleep gives the count it has seen, and does not sleep when there is another by then.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>

namespace lockstep::mpi {

using Clock = std::chrono::steady_clock;

struct alignas(128) Bell {
  std::atomic<std::uint32_t> rings = 0;  // for the waiter, and the count of all
  std::atomic<std::uint32_t> calls = 0;  // for the progress thread
  std::atomic<std::uint32_t> attended = 0;
  std::atomic<std::uint32_t> waiter_asleep = 0;
  std::atomic<std::uint32_t> progress_asleep = 0;

  void ring();
  void call();  // the progress thread, whoever attends
};

// Returns when the word is no longer `seen`, is rung, or the time has passed.
void sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::atomic<std::uint32_t>& asleep,
              Clock::duration most);

}  // namespace lockstep::mpi
