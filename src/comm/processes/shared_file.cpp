#include "comm/processes/shared_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>
#include <utility>

#include "base/error.h"
#include "base/integers.h"
#include "base/system_failure.h"

namespace lockstep::processes {

namespace {

constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kHugePage = 2 << 20;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 46;  // offsets, not memory: that is taken where it is touched

SharedFileHeader& head_of(const Mapping& mapping) { return *reinterpret_cast<SharedFileHeader*>(mapping.data()); }

[[noreturn]] void fail_in_file(const std::string& what) {
  const int error = errno;
  throw EnvironmentError(
      fmt::format("memory that processes share: {}: {}; {}", what, std::strerror(error), shared_memory_remedy(error)));
}

}  // namespace

SharedFile::SharedFile() : end_(kHugePage) {
  rlimit most{};  // beyond it ftruncate would end the process by a signal
  errno = EFBIG;
  if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < static_cast<rlim_t>(kMostBytes)) fail_in_file("ulimit -f");
  file_ = memfd_create("lockstep-tensors", MFD_CLOEXEC);
  if (file_ < 0) fail_in_file("memfd_create");
  if (ftruncate(file_, kMostBytes) != 0) {
    const int error = errno;
    ::close(file_);
    errno = error;
    fail_in_file("ftruncate");
  }
  head_ = std::make_unique<Mapping>(file_, 0, kPage);
  std::random_device random;
  head_of(*head_).key = std::uint64_t{random()} << 32 | random();
}

SharedFile::~SharedFile() { ::close(file_); }

std::string SharedFile::address() const { return fmt::format("{} {} {}", getpid(), file_, head_of(*head_).key); }

TensorLocation SharedFile::find(const void* data, std::int64_t bytes) const {
  const char* const from = static_cast<const char*>(data);
  const std::lock_guard lock(mutex_);
  auto after = segments_.upper_bound(from);
  if (after == segments_.begin()) return {};
  const auto& [begin, segment] = *--after;
  if (from + bytes > begin + segment.bytes) return {};
  return {segment.offset, segment.bytes, from - begin, head_of(*head_).gone.load()};
}

void* SharedFile::take(std::int64_t bytes) {
  const std::int64_t whole = round_up(bytes, kPage);
  const std::lock_guard lock(mutex_);
  if (whole > kMostBytes - end_) return nullptr;
  void* const data = mmap(nullptr, static_cast<std::size_t>(whole), PROT_READ | PROT_WRITE, MAP_SHARED, file_, end_);
  if (data == MAP_FAILED) return nullptr;
  madvise(data, static_cast<std::size_t>(whole), MADV_HUGEPAGE);  // advice: refusal is no error
  segments_.emplace(static_cast<const char*>(data), Segment{end_, whole});
  end_ = round_up(end_ + whole, kHugePage);
  return data;
}

void SharedFile::give_back(void* data) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = segments_.find(static_cast<const char*>(data));
  if (found == segments_.end()) return;
  const auto [offset, bytes] = found->second;
  munmap(data, static_cast<std::size_t>(bytes));
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
  segments_.erase(found);
  head_of(*head_).gone.fetch_add(1);
}

PeerFile::PeerFile(const std::string& address) {
  long long process = 0, file = 0;
  unsigned long long key = 0;
  if (std::sscanf(address.c_str(), "%lld %lld %llu", &process, &file, &key) != 3)
    throw EnvironmentError(fmt::format("memory that processes share: '{}' is no address of it", address));
  const std::string path = fmt::format("/proc/{}/fd/{}", process, file);
  // In another namespace the number is another process's, and the file may be anything: looked at before it is opened.
  struct stat about {};
  if (stat(path.c_str(), &about) != 0) fail_in_file(path);
  errno = ENOENT;
  if (!S_ISREG(about.st_mode) || about.st_size != kMostBytes) fail_in_file(path);
  file_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file_ < 0) fail_in_file("open of " + path);
  try {
    head_ = std::make_unique<Mapping>(file_, 0, kPage);
    errno = ENOENT;
    if (head_of(*head_).key != key) fail_in_file(path);
  } catch (...) {
    ::close(file_);
    throw;
  }
}

PeerFile::~PeerFile() { ::close(file_); }

std::shared_ptr<Mapping> PeerFile::map(const TensorLocation& location) {
  if (const auto known = segments_.find(location.segment); known != segments_.end()) return known->second;
  auto mapping = std::make_shared<Mapping>(file_, static_cast<std::uint64_t>(location.segment),
                                           static_cast<std::uint64_t>(location.bytes));
  madvise(mapping->data(), static_cast<std::size_t>(location.bytes), MADV_HUGEPAGE);
  if (head_of(*head_).gone.load() == location.gone) segments_.emplace(location.segment, mapping);
  return mapping;
}

void PeerFile::tidy() {
  const std::uint64_t gone = head_of(*head_).gone.load();
  if (std::exchange(seen_gone_, gone) != gone) segments_.clear();
}

}  // namespace lockstep::processes
