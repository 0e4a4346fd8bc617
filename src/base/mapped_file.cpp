#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/integers.h"
#include "base/system_failure.h"

namespace lockstep {
namespace {

// The descriptor is needed only until the mapping exists.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& problem, const std::string& remedy) {
  throw UserError(ExitCode::bad_input_file, fmt::format("{}: {}", path.string(), problem), remedy);
}

[[noreturn]] void refuse_open(const std::filesystem::path& path, int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      refuse(path, "there is no such file", "check the path");
    case EACCES:
    case EPERM:
      refuse(path, "this user may not read the file", "give it read permission");
    default:
      refuse(path, "cannot be opened: " + std::generic_category().message(error), "check the path and the disk");
  }
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a FIFO would otherwise wait for a writer for ever. It means nothing to a regular file.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) refuse_open(path, errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) refuse_open(path, errno);
  if (S_ISDIR(status.st_mode)) refuse(path, "is a folder", "name the file itself");
  if (!S_ISREG(status.st_mode)) refuse(path, "is not a regular file", "name a file on a disk");
  if (status.st_size == 0) return;  // a mapping of nothing is an error to mmap, not to us

  const auto size = static_cast<std::size_t>(status.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) {
    throw EnvironmentError(system_failure(path, fmt::format("mmap of {} bytes", size), errno));
  }
  bytes_ = {static_cast<const std::byte*>(data), size};
}

void MappedFile::forget(std::int64_t begin, std::int64_t end) const {
  const std::int64_t page = ::sysconf(_SC_PAGESIZE);
  begin = round_up(begin, page);
  end = std::min(end, std::ssize(bytes_)) / page * page;
  // Only advice: a refusal changes nothing that is read.
  if (begin < end) ::madvise(const_cast<std::byte*>(bytes_.data()) + begin, end - begin, MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace lockstep
