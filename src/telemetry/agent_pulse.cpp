#include "telemetry/agent_pulse.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>

namespace lockstep {

namespace {

// The descriptor that the variable names, made ready; -1: there is none that an agent could read the other end of.
int take_descriptor() {
  const char* const text = std::getenv(kAgentDescriptor);
  if (!text) return -1;
  int descriptor = -1;
  const char* const end = text + std::strlen(text);
  const auto [stopped, error] = std::from_chars(text, end, descriptor);
  const bool is_number = error == std::errc() && stopped == end;
  ::unsetenv(kAgentDescriptor);
  struct stat about {};
  if (!is_number || descriptor <= STDERR_FILENO || ::fstat(descriptor, &about) != 0) return -1;
  const int flags = ::fcntl(descriptor, F_GETFL);
  if ((!S_ISFIFO(about.st_mode) && !S_ISSOCK(about.st_mode)) || flags < 0 || (flags & O_ACCMODE) == O_RDONLY) return -1;
  if (::fcntl(descriptor, F_SETFD, FD_CLOEXEC) != 0 || ::fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) != 0) return -1;
  return descriptor;
}

}  // namespace

AgentPulse::AgentPulse(std::chrono::nanoseconds period) : descriptor_(take_descriptor()) {
  if (descriptor_ >= 0) thread_ = std::thread([this, period] { run(period); });
}

AgentPulse::~AgentPulse() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_one();
  thread_.join();
}

void AgentPulse::run(std::chrono::nanoseconds period) {
  // Signals are for the threads that had them before; a SIGPIPE of this one stays pending and ends with it.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  for (std::unique_lock lock(mutex_); !stop_; stopped_.wait_for(lock, period, [this] { return stop_; })) {
    const char beat = '.';
    if (::write(descriptor_, &beat, 1) < 0 && errno == EPIPE) return;
  }
}

}  // namespace lockstep
