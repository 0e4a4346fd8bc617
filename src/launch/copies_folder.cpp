#include "launch/copies_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "base/checksum.h"
#include "base/error.h"
#include "base/system_failure.h"

namespace lockstep {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kFolderPrefix = "lockstep-";
constexpr const char* kLockName = "lock";
constexpr double kNewSeconds = 60;  // seconds in which whoever makes a folder also locks it

bool is_in_memory(const fs::path& place) {
  struct statfs status {};
  if (::statfs(place.c_str(), &status) != 0) throw EnvironmentError(system_failure(place, "statfs", errno));
  return status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC;
}

// "lockstep-", 16 digits of a sum, "-", a process.
bool is_our_name(std::string_view name) {
  constexpr std::string_view kHex = "0123456789abcdef", kDigits = "0123456789";
  const std::size_t sum = kFolderPrefix.size() + 16;
  return name.starts_with(kFolderPrefix) && name.size() > sum + 1 && name[sum] == '-' &&
         name.substr(kFolderPrefix.size(), 16).find_first_not_of(kHex) == name.npos &&
         name.substr(sum + 1).find_first_not_of(kDigits) == name.npos;
}

double age_of(const struct stat& status) {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count() -
         static_cast<double>(status.st_mtim.tv_sec);
}

// Whose agent is gone: nobody has its lock.
bool is_abandoned(const fs::path& folder) {
  struct stat status {};
  if (::lstat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != ::geteuid()) return false;
  const int lock = ::open((folder / kLockName).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (lock < 0) return errno == ENOENT && age_of(status) > kNewSeconds;
  const bool free = ::flock(lock, LOCK_EX | LOCK_NB) == 0;
  ::close(lock);
  return free;
}

void remove_abandoned(const fs::path& place) {
  std::error_code error;
  for (fs::directory_iterator at(place, error), end; !error && at != end; at.increment(error))
    if (is_our_name(at->path().filename().string()) && is_abandoned(at->path())) {
      std::error_code ignored;
      fs::remove_all(at->path(), ignored);
    }
}

}  // namespace

CopiesFolder::CopiesFolder(const fs::path& place, const fs::path& run) {
  if (!is_in_memory(place))
    throw EnvironmentError(
        fmt::format("{} is on a disk; name a folder of a file system in memory (tmpfs) with --memory, as /dev/shm",
                    place.string()));
  remove_abandoned(place);
  std::error_code error;
  const std::string of = fs::weakly_canonical(run, error).string();
  path_ = place / fmt::format("{}{:016x}-{}", kFolderPrefix, checksum(std::as_bytes(std::span(of))), ::getpid());
  if (::mkdir(path_.c_str(), 0700) != 0) throw EnvironmentError(system_failure(path_, "mkdir", errno));
  lock_ = ::open((path_ / kLockName).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock_ < 0 || ::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    const std::string why = system_failure(path_ / kLockName, "lock", errno);
    fs::remove_all(path_, error);
    throw EnvironmentError(why);
  }
}

CopiesFolder::~CopiesFolder() {
  std::error_code error;
  fs::remove_all(path_, error);  // ranks that an mpirun has left behind may still write there
  if (error) fs::remove_all(path_, error);
  if (lock_ >= 0) ::close(lock_);
}

}  // namespace lockstep
