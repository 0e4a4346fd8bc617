#include "checkpoint/disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/system_failure.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const char* call, const fs::path& path, int error = errno) {
  throw EnvironmentError(system_failure(path, call, error));
}

}  // namespace

void Disk::make_folder(const fs::path& path) const {
  before("mkdir", path);
  if (::mkdir(path.c_str(), 0777) != 0) fail("mkdir", path);
}

void Disk::make_folders(const fs::path& path) const {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) {
    if (!S_ISDIR(status.st_mode)) fail("mkdir", path, ENOTDIR);
    return;
  }
  if (errno != ENOENT) fail("stat", path);
  const fs::path parent = path.parent_path();
  if (!parent.empty() && parent != path) make_folders(parent);
  before("mkdir", path);
  if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) fail("mkdir", path);  // "a/" has its own parent "a"
}

void Disk::sync_folder(const fs::path& path) const {
  if (!syncs_) return;
  before("fsync", path);
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail("open", path);
  const int result = ::fsync(fd), error = errno;
  ::close(fd);
  if (result != 0 && error != EINVAL) fail("fsync", path, error);  // EINVAL: a file system whose folders need no sync
}

void Disk::rename(const fs::path& from, const fs::path& to) const {
  before("rename", to);
  if (::rename(from.c_str(), to.c_str()) != 0) fail("rename", to);
}

bool Disk::swap(const fs::path& a, const fs::path& b) const {
  before("rename", b);
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) return false;
  fail("rename", b);
}

void Disk::remove_file(const fs::path& path) const {
  before("unlink", path);
  if (::unlink(path.c_str()) != 0) fail("unlink", path);
}

void Disk::remove_tree(const fs::path& path) const {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {  // a link is removed, never followed
    if (errno == ENOENT) return;
    fail("lstat", path);
  }
  if (!S_ISDIR(status.st_mode)) return remove_file(path);
  std::vector<fs::path> inside;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error))
    inside.push_back(at->path());
  if (error) fail("opendir", path, error.value());
  std::sort(inside.begin(), inside.end());
  for (const fs::path& item : inside) remove_tree(item);
  before("rmdir", path);
  if (::rmdir(path.c_str()) != 0) fail("rmdir", path);
}

void Disk::drop_cache(const fs::path& path) const {
  before("fadvise", path);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail("open", path);
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);  // advice: refusal is no error
  ::close(fd);
}

DiskFile::DiskFile(const Disk& disk, fs::path path) : disk_(disk), path_(std::move(path)) {
  disk_.before("open", path_);
  const int anew = disk_.syncs() ? O_TRUNC : 0;
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | anew | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd_ < 0) fail("open", path_);
}

DiskFile::~DiskFile() {
  if (fd_ >= 0) ::close(fd_);
}

void DiskFile::write(const void* data, std::int64_t bytes) {
  for (const auto* at = static_cast<const std::byte*>(data); bytes > 0;) {
    const std::int64_t asked = std::min(bytes, disk_.write_bytes());
    disk_.before("write", path_);
    const ssize_t written = ::write(fd_, at, static_cast<std::size_t>(asked));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write", path_);
    sum_.update({at, static_cast<std::size_t>(written)});
    at += written;
    bytes -= written;
    bytes_ += written;
  }
}

WrittenFile DiskFile::finish() {
  if (disk_.syncs()) {
    disk_.before("fsync", path_);
    if (::fsync(fd_) != 0) fail("fsync", path_);
  } else if (::ftruncate(fd_, bytes_) != 0) {
    fail("ftruncate", path_);
  }
  if (::close(std::exchange(fd_, -1)) != 0) fail("close", path_);
  return {.bytes = bytes_, .checksum = sum_.value()};
}

Provisional::~Provisional() {
  if (kept_) return;
  try {
    disk_.remove_tree(path_);
  } catch (...) {  // the failure that led here is the one to tell; the next save cleans up
  }
}

WrittenFile replace_file(const Disk& disk, const fs::path& path, const std::function<void(DiskFile&)>& fill) {
  fs::path beside = path;
  beside += ".partial";
  Provisional provisional(disk, beside);
  DiskFile file(disk, beside);
  fill(file);
  const WrittenFile written = file.finish();
  disk.rename(beside, path);
  provisional.keep();
  disk.sync_folder(path.has_parent_path() ? path.parent_path() : ".");
  return written;
}

bool is_plain_name(std::string_view name) {
  const auto bad = [](char c) { return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20 || c == 0x7F; };
  return !name.empty() && name.size() <= 255 && name.front() != '.' && std::none_of(name.begin(), name.end(), bad);
}

}  // namespace lockstep
