#include "cli/signals.h"

#include <unistd.h>

#include <csignal>

#include "base/error.h"

namespace lockstep {

namespace {
std::atomic<bool> stop_asked = false;  // a signal handler can reach nothing but this
static_assert(std::atomic<bool>::is_always_lock_free);

void on_signal(int) {
  if (stop_asked.exchange(true)) _exit(static_cast<int>(ExitCode::interrupted));
}
}  // namespace

const std::atomic<bool>& listen_for_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
  return stop_asked;
}

}  // namespace lockstep
