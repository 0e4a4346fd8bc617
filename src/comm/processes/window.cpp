#include "comm/processes/window.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/integers.h"
#include "base/system_failure.h"

namespace lockstep::processes {

namespace {

constexpr std::uint64_t kWindowPage = 4096;

std::uint64_t header_bytes() { return static_cast<std::uint64_t>(round_up(sizeof(HostHeader), 256)); }
std::uint64_t first_bytes(int processes) {
  return static_cast<std::uint64_t>(
      round_up(static_cast<std::int64_t>(header_bytes() + processes * sizeof(ProcessSlot)), kWindowPage));
}

[[noreturn]] void fail_in_window(const std::string& what) {
  const int error = errno;
  throw EnvironmentError(
      fmt::format("shared memory of this host: {}: {}; {}", what, std::strerror(error), shared_memory_remedy(error)));
}

void copy_name(char (&to)[48], const std::string& name) {
  const std::size_t n = std::min(name.size(), sizeof(to) - 1);
  std::memcpy(to, name.data(), n);
  to[n] = 0;
}

}  // namespace

bool SharedFailure::write(const CommFailure& failure) {
  std::uint32_t well = 0;
  if (!state.compare_exchange_strong(well, 1)) return false;
  const std::size_t n = std::min(failure.what.size(), kMostText - 1);
  std::memcpy(text, failure.what.data(), n);
  text[n] = 0;
  secondary = failure.secondary;
  state.store(2);  // in one order with who is at work (direct_plan.h)
  return true;
}

Mapping::Mapping(int file, std::uint64_t offset, std::uint64_t bytes) : bytes_(bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, static_cast<off_t>(offset));
  if (at == MAP_FAILED) fail_in_window(fmt::format("mmap of {} bytes", bytes));
  data_ = static_cast<char*>(at);
}

Mapping::~Mapping() { munmap(data_, bytes_); }

// Holds the table's mutex. Who died holding it left the table in order: entries are filled in before their key.
class HostWindow::Locked {
 public:
  explicit Locked(HostHeader& header) : mutex_(header.mutex) {
    const int error = pthread_mutex_lock(&mutex_);
    if (error == EOWNERDEAD) pthread_mutex_consistent(&mutex_);
    LOCKSTEP_CHECK(error == 0 || error == EOWNERDEAD, "the table of groups cannot be locked: {}", std::strerror(error));
  }
  ~Locked() { pthread_mutex_unlock(&mutex_); }
  Locked(const Locked&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

HostWindow::HostWindow(const std::string& name, int processes, bool make)
    : name_(name), processes_(processes), has_name_(make) {
  file_ = shm_open(name.c_str(), make ? O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC : O_RDWR | O_CLOEXEC, 0600);
  if (file_ < 0) fail_in_window("shm_open of " + name);
  if (make && ftruncate(file_, static_cast<off_t>(first_bytes(processes))) != 0) {
    unlink_name();
    fail_in_window("ftruncate of " + name);
  }
  header_ = std::make_unique<Mapping>(file_, 0, first_bytes(processes));
  if (!make) return;
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&header().mutex, &kind);
  pthread_mutexattr_destroy(&kind);
  header().end = first_bytes(processes);
}

HostWindow::~HostWindow() {
  unlink_name();
  ::close(file_);
}

void HostWindow::unlink_name() {
  if (std::exchange(has_name_, false)) shm_unlink(name_.c_str());
}

ProcessSlot& HostWindow::process_slot(int index) {
  return *(reinterpret_cast<ProcessSlot*>(header_->data() + header_bytes()) + index);
}

std::unique_ptr<Mapping> HostWindow::open(const Claim& claim, GroupEntry& found) {
  const Locked locked(header());
  GroupEntry* free = nullptr;
  for (GroupEntry& entry : header().groups) {
    if (entry.key == 0 && !free) free = &entry;
    if (entry.key != claim.key) continue;
    found = entry;
    if (entry.digest != claim.digest) return nullptr;
    return std::make_unique<Mapping>(file_, entry.offset, entry.bytes);
  }
  if (!free)
    throw EnvironmentError(
        fmt::format("more than {} groups of ranks on one host at a time; let go of some", HostHeader::kMostGroups));
  const std::uint64_t bytes = static_cast<std::uint64_t>(round_up(static_cast<std::int64_t>(claim.bytes), kWindowPage));
  if (ftruncate(file_, static_cast<off_t>(header().end + bytes)) != 0) fail_in_window("ftruncate");
  *free = {.digest = claim.digest, .offset = header().end, .bytes = bytes};
  free->ranks = static_cast<std::uint32_t>(claim.ranks);
  free->here = static_cast<std::uint32_t>(claim.here);
  copy_name(free->name, claim.name);
  header().end += bytes;
  free->key = claim.key;
  found = *free;
  return std::make_unique<Mapping>(file_, found.offset, found.bytes);
}

void HostWindow::close(std::uint64_t key) noexcept {
  const Locked locked(header());
  for (GroupEntry& entry : header().groups) {
    if (entry.key != key || ++entry.left < entry.here) continue;
    fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(entry.offset),
              static_cast<off_t>(entry.bytes));
    entry.key = 0;
  }
}

}  // namespace lockstep::processes
