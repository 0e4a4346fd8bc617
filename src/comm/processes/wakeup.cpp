#include "comm/processes/wakeup.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace lockstep::processes {

namespace {
void wake(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}
}  // namespace

void Wakeup::notify() {
  signals.fetch_add(1);
  if (has_waiter.load() == 0)
    notify_progress();
  else if (waiter_asleep.load() != 0)
    wake(signals);
}

void Wakeup::notify_progress() {
  progress_signals.fetch_add(1);
  if (progress_asleep.load() != 0) wake(progress_signals);
}

void sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::atomic<std::uint32_t>& asleep,
              Clock::duration most) {
  const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(most).count();
  if (nanoseconds <= 0) return;
  timespec time{};
  time.tv_sec = static_cast<time_t>(nanoseconds / 1000000000);
  time.tv_nsec = static_cast<long>(nanoseconds % 1000000000);
  asleep.store(1);
  if (word.load() == seen)
    syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, seen, &time, nullptr, 0);
  asleep.store(0);
}

}  // namespace lockstep::processes
