#include "cli/signals.h"

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "cli/status_line.h"
#include "cli/terminal.h"

namespace lockstep {

namespace {

constexpr std::pair<std::string_view, int> kNumbers[] = {
    {"SIGINT", SIGINT},   {"SIGTERM", SIGTERM}, {"SIGHUP", SIGHUP},   {"SIGQUIT", SIGQUIT},
    {"SIGALRM", SIGALRM}, {"SIGUSR1", SIGUSR1}, {"SIGUSR2", SIGUSR2}, {"SIGXCPU", SIGXCPU}};

// All that a signal handler can reach.
std::atomic<bool> stop_asked = false;
std::atomic<int> first_heard = 0, told_too = -1;
std::atomic<int> first_ender = 0;           // SIGINT or SIGTERM: another one ends at once
std::atomic<std::int64_t> first_ended = 0;  // when it came, in nanoseconds; 0: just now
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free &&
              std::atomic<std::int64_t>::is_always_lock_free);

constexpr std::int64_t kSameWish = 200'000'000;  // nanoseconds

std::int64_t clock_nanoseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);  // which a handler may call
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void say(int descriptor, std::string_view text) {
  if (descriptor >= 0 && ::write(descriptor, text.data(), text.size()) < 0) return;  // nobody is left to tell
}

void on_signal(int number) {
  int none = 0;
  first_heard.compare_exchange_strong(none, number);
  stop_asked = true;
  if (number != SIGINT && number != SIGTERM) return;
  int nobody = 0;
  if (first_ender.compare_exchange_strong(nobody, number)) {
    first_ended = clock_nanoseconds();
    return;
  }
  // timeout(1) and some launchers signal the process and then its group: one wish that comes twice.
  if (const std::int64_t first = first_ended;
      number == first_ender && (first == 0 || clock_nanoseconds() - first < kSameWish))
    return;
  erase_status_line();
  say(STDERR_FILENO, "lockstep: a second signal: ended at once, nothing more was saved\n");
  say(told_too, "a second signal: ended at once, nothing more was saved\n");
  _exit(static_cast<int>(ExitCode::interrupted));
}

void listen(int number) {
  struct sigaction before {};
  if (sigaction(number, nullptr, &before) != 0 || before.sa_handler == SIG_IGN) return;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(number, &action, nullptr);
}

}  // namespace

const std::atomic<bool>& listen_for_signals(std::span<const std::string> others) {
  for (const int always : {SIGINT, SIGTERM}) listen(always);
  for (const std::string& name : others)
    for (const auto& [known, number] : kNumbers)
      if (name == known) listen(number);
  return stop_asked;
}

std::string signal_heard() {
  const int heard = first_heard;
  for (const auto& [name, number] : kNumbers)
    if (number == heard) return std::string(name);
  return "";
}

StopNotice::StopNotice() {
  if (!on_terminal(STDERR_FILENO)) return;
  thread_ = std::thread([this] {
    sigset_t all;  // signals are for the threads that had them before
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    std::unique_lock lock(mutex_);
    const auto ended_within = [&](std::chrono::milliseconds time) {
      return ended_.wait_for(lock, time, [this] { return end_; });
    };
    constexpr std::chrono::milliseconds kLook{100};
    while (first_heard == 0)
      if (ended_within(kLook)) return;
    if (first_heard != SIGINT || ended_within(kPatience)) return;
    // Over the "^C" that the terminal has echoed.
    say(STDERR_FILENO, "\rlockstep: stopping after this step; press Ctrl-C again to end now without saving\n");
  });
}

StopNotice::~StopNotice() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ended_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void tell_second_signal(int descriptor) { told_too = descriptor; }

}  // namespace lockstep
