#include "data/corpus/byte_stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/system_failure.h"

namespace lockstep {

namespace {

constexpr std::string_view kGzip = ".gz", kZstd = ".zst";
constexpr std::string_view kGzipMagic = "\x1f\x8b", kZstdMagic = "\x28\xb5\x2f\xfd";

class FileBytes final : public ByteStream {
 public:
  explicit FileBytes(const std::string& path) : name_(path) {
    const auto refuse_file = [&](const std::string& problem, const std::string& remedy) {
      throw UserError(ExitCode::bad_input_file, fmt::format("{}: {}", name_, problem), remedy);
    };
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0)
      refuse_file(errno == ENOENT ? "there is no such file" : std::string("cannot be read: ") + std::strerror(errno),
                  "check the path");
    if (!S_ISREG(status.st_mode)) refuse_file("is not a regular file", "name a file, or - for standard input");
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd_ < 0) refuse_file(std::string("cannot be read: ") + std::strerror(errno), "give it read permission");
    ::posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);
  }
  FileBytes() : name_("standard input"), fd_(STDIN_FILENO), owned_(false) {}
  ~FileBytes() override {
    if (owned_ && fd_ >= 0) ::close(fd_);
  }

  std::size_t read(std::span<char> to) override {
    if (held_at_ < held_) {
      const std::size_t count = std::min(to.size(), held_ - held_at_);
      std::copy_n(beginning_.begin() + static_cast<std::ptrdiff_t>(held_at_), count, to.begin());
      held_at_ += count;
      return count;
    }
    return read_more(to);
  }
  std::int64_t raw_bytes() const override { return count_; }
  bool skip_to(std::int64_t byte) override {
    if (!owned_) return false;
    if (::lseek(fd_, byte, SEEK_SET) != byte) throw EnvironmentError(system_failure(name_, "seek", errno));
    count_ = byte;
    return true;
  }

  // The first bytes, which are read again afterwards.
  std::string_view beginning() {
    while (held_ < beginning_.size()) {
      const std::size_t count = read_more(std::span(beginning_).subspan(held_));
      if (count == 0) break;
      held_ += count;
    }
    return {beginning_.data(), held_};
  }

 private:
  std::size_t read_more(std::span<char> to) {
    for (;;) {
      const ssize_t count = ::read(fd_, to.data(), to.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw EnvironmentError(system_failure(name_, "read", errno));
      count_ += count;
      return static_cast<std::size_t>(count);
    }
  }

  std::string name_;
  int fd_ = -1;
  bool owned_ = true;
  std::atomic<std::int64_t> count_ = 0;
  std::array<char, 4> beginning_{};
  std::size_t held_ = 0, held_at_ = 0;
};

}  // namespace

std::string shown_name(const std::string& path) { return path == kStandardInput ? "standard input" : path; }

std::string_view without_compression(std::string_view name) {
  if (name.ends_with(kGzip))
    name.remove_suffix(kGzip.size());
  else if (name.ends_with(kZstd))
    name.remove_suffix(kZstd.size());
  return name;
}

std::unique_ptr<ByteStream> open_bytes(const std::string& path) {
  if (path == kStandardInput) {
    auto input = std::make_unique<FileBytes>();
    const std::string_view begins = input->beginning();
    if (begins.starts_with(kGzipMagic)) return gunzipped(std::move(input), "standard input");
    if (begins.starts_with(kZstdMagic)) return unzstd(std::move(input), "standard input");
    return input;
  }
  auto file = std::make_unique<FileBytes>(path);
  if (std::string_view(path).ends_with(kGzip)) return gunzipped(std::move(file), path);
  if (std::string_view(path).ends_with(kZstd)) return unzstd(std::move(file), path);
  return file;
}

}  // namespace lockstep
