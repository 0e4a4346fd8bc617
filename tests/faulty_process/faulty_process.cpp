// A library for LD_PRELOAD: processes that end in ways a signal alone cannot cause, a calendar that jumps, and a disk
// under the checkpoints that fails. faulty_process.h says how it is told.
//
// A thread of the library waits for signals: kExitZero and kExitFive call exit, kThrow throws an exception that nobody
// catches, kLeak takes memory until the system ends the process.
#include "faulty_process/faulty_process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <stdexcept>

namespace {

using lockstep::tests::FaultyControls;

const FaultyControls& controls() {
  static const FaultyControls* const mapped = [] {
    static const FaultyControls none{};
    const char* const path = std::getenv("FAULTY_PROCESS");
    if (!path) return &none;
    using Open = int (*)(const char*, int, ...);
    const int file = reinterpret_cast<Open>(dlsym(RTLD_NEXT, "open"))(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return &none;
    void* const at = mmap(nullptr, sizeof(FaultyControls), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    return at == MAP_FAILED ? &none : static_cast<const FaultyControls*>(at);
  }();
  return *mapped;
}

bool of_checkpoints(const char* path) { return path && std::strstr(path, "/checkpoints"); }

int failure_at(const char* path, bool writes) {
  const int any = controls().any_error, write = controls().write_error;
  if ((any == 0 && (write == 0 || !writes)) || !of_checkpoints(path)) return 0;
  return any != 0 ? any : write;
}

int failure_of(int file) {
  if (controls().any_error == 0 && controls().write_error == 0) return 0;
  char link[64], path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return 0;
  path[length] = 0;
  return failure_at(path, true);
}

template <class Call>
Call next(const char* name) {
  return reinterpret_cast<Call>(dlsym(RTLD_NEXT, name));
}

[[noreturn]] void leak() {
  for (;;) {
    const std::size_t bytes = 4 << 20;
    if (void* const at = std::malloc(bytes)) std::memset(at, 1, bytes);
  }
}

void* obey(void*) {
  using namespace lockstep::tests;
  sigset_t wanted;
  sigemptyset(&wanted);
  for (int which = kExitZero; which <= kLeak; ++which) sigaddset(&wanted, SIGRTMIN + which);
  for (;;) {
    int number = 0;
    if (sigwait(&wanted, &number) != 0) continue;
    switch (number - SIGRTMIN) {
      case kExitZero:
        std::exit(0);
      case kExitFive:
        std::exit(5);
      case kThrow:
        throw std::runtime_error("thrown by tests/faulty_process");
      default:
        leak();
    }
  }
}

__attribute__((constructor)) void begin() {
  if (!std::getenv("FAULTY_PROCESS")) return;
  sigset_t ours;
  sigemptyset(&ours);
  for (int which = lockstep::tests::kExitZero; which <= lockstep::tests::kLeak; ++which)
    sigaddset(&ours, SIGRTMIN + which);
  pthread_sigmask(SIG_BLOCK, &ours, nullptr);  // of all threads that follow
  pthread_t thread;
  if (pthread_create(&thread, nullptr, obey, nullptr) == 0) pthread_detach(thread);
}

int open_by(const char* name, const char* path, int flags, mode_t mode) {
  const bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT);
  if (const int failure = failure_at(path, writes)) {
    errno = failure;
    return -1;
  }
  using Open = int (*)(const char*, int, ...);
  return next<Open>(name)(path, flags, mode);
}

mode_t mode_in(int flags, va_list list) { return flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0; }

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_in(flags, list);
  va_end(list);
  return open_by("open", path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_in(flags, list);
  va_end(list);
  return open_by("open64", path, flags, mode);
}

ssize_t write(int file, const void* data, size_t bytes) {
  static const auto call = next<ssize_t (*)(int, const void*, size_t)>("write");
  if (const int failure = failure_of(file)) {
    errno = failure;
    return -1;
  }
  return call(file, data, bytes);
}
int fsync(int file) {
  static const auto call = next<int (*)(int)>("fsync");
  if (const int failure = failure_of(file)) {
    errno = failure;
    return -1;
  }
  return call(file);
}
int mkdir(const char* path, mode_t mode) noexcept {
  static const auto call = next<int (*)(const char*, mode_t)>("mkdir");
  if (const int failure = failure_at(path, true)) {
    errno = failure;
    return -1;
  }
  return call(path, mode);
}
int rename(const char* from, const char* to) noexcept {
  static const auto call = next<int (*)(const char*, const char*)>("rename");
  if (const int failure = failure_at(to, true)) {
    errno = failure;
    return -1;
  }
  return call(from, to);
}

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static const auto call = next<int (*)(clockid_t, timespec*)>("clock_gettime");
  const int code = call(clock, time);
  const std::int64_t offset = controls().clock_offset_ns;
  if (code == 0 && offset != 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    constexpr std::int64_t kSecond = 1'000'000'000;
    const std::int64_t all = time->tv_sec * kSecond + time->tv_nsec + offset;
    *time = {.tv_sec = all / kSecond, .tv_nsec = all % kSecond};
  }
  return code;
}
int gettimeofday(timeval* time, void*) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  *time = {.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
  return 0;
}
time_t time(time_t* out) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}

}  // extern "C"
