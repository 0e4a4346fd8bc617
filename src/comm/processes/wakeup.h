// How processes of one host wake each other: one Wakeup per process, in shared memory.
//
// Two threads of a process may sleep on it: the one that waits for an operation (`has_waiter` while it does), else the
// progress thread. So a process whose waiter does the work itself does not wake its progress thread too. No signal is
// lost: a thread that is about to sleep gives the count it has seen, and does not sleep if the count has changed.
#pragma once
#include <atomic>
#include <cstdint>

#include "comm/wait_policy.h"

namespace lockstep::processes {

using waiting::Clock;

struct alignas(128) Wakeup {
  std::atomic<std::uint32_t> signals = 0;           // for the waiter, and the count of all
  std::atomic<std::uint32_t> progress_signals = 0;  // for the progress thread
  std::atomic<std::uint32_t> has_waiter = 0;
  std::atomic<std::uint32_t> waiter_asleep = 0;
  std::atomic<std::uint32_t> progress_asleep = 0;

  void notify();           // the waiter if there is one, else the progress thread
  void notify_progress();  // the progress thread, also where there is a waiter
};

// Returns when the word is no longer `seen`, the thread is woken, or the time has passed.
void sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::atomic<std::uint32_t>& asleep,
              Clock::duration most);

}  // namespace lockstep::processes
