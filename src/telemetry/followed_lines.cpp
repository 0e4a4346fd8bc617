#include "telemetry/followed_lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/checksum.h"

namespace lockstep {

namespace {
struct OpenedToRead {
  explicit OpenedToRead(const std::filesystem::path& path)
      : descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}  // a pipe would wait for its writer
  ~OpenedToRead() {
    if (descriptor >= 0) ::close(descriptor);
  }
  OpenedToRead(const OpenedToRead&) = delete;
  OpenedToRead& operator=(const OpenedToRead&) = delete;
  int descriptor;
};

// Of the bytes before an offset, which are those of a line with its time: two files that have them alike there are
// alike up to there.
std::uint64_t checksum_before(int descriptor, std::int64_t offset) {
  std::array<std::byte, 256> bytes;
  const std::int64_t count = std::min<std::int64_t>(std::ssize(bytes), offset);
  const ssize_t got = ::pread(descriptor, bytes.data(), static_cast<std::size_t>(count), offset - count);
  return checksum(std::span(bytes).first(static_cast<std::size_t>(std::max<ssize_t>(got, 0))));
}
}  // namespace

void FollowedLines::read(const std::function<void()>& anew, const std::function<void(std::string_view line)>& line,
                         const Marks* marks) {
  const OpenedToRead file(path_);
  struct stat about {};
  const bool there = file.descriptor >= 0 && ::fstat(file.descriptor, &about) == 0 && S_ISREG(about.st_mode);
  if (!there || about.st_dev != device_ || about.st_ino != inode_ || about.st_size < offset_) {
    while (there && !marks_.empty() &&
           (marks_.back().offset > about.st_size ||
            marks_.back().before != checksum_before(file.descriptor, marks_.back().offset)))
      marks_.pop_back();
    if (!there) marks_.clear();
    if (marks && !marks_.empty())
      marks->back(marks_.size());
    else if (offset_ > 0)
      anew();
    offset_ = marks && !marks_.empty() ? marks_.back().offset : 0;
  }
  exists_ = there;
  if (!there) return;
  device_ = about.st_dev;
  inode_ = about.st_ino;

  bool skipping = false;  // up to the end of a line: one that is too long, or was begun before what is read
  bool too_long = false;
  if (offset_ == 0 && about.st_size > most_bytes_) offset_ = about.st_size - most_bytes_, skipping = true;
  constexpr std::size_t kBlock = 1 << 20;
  std::string held;
  std::int64_t at = offset_;
  while (at < about.st_size) {  // what is appended meanwhile is for the next call
    const std::size_t before = held.size();
    held.resize(before + static_cast<std::size_t>(std::min<std::int64_t>(kBlock, about.st_size - at)));
    const ssize_t got = ::pread(file.descriptor, held.data() + before, held.size() - before, at);
    held.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got <= 0) return;
    at += got;
    std::size_t begin = 0;
    for (std::size_t end; (end = held.find('\n', std::max(begin, before))) != std::string::npos; begin = end + 1) {
      offset_ += static_cast<std::int64_t>(end + 1 - begin);
      if (!skipping || too_long)
        line(skipping ? std::string_view() : std::string_view(held).substr(begin, end - begin));
      skipping = too_long = false;
      if (marks && offset_ - (marks_.empty() ? 0 : marks_.back().offset) >= kMarkBytes) {
        marks_.push_back({offset_, checksum_before(file.descriptor, offset_)});
        marks->made();
      }
    }
    held.erase(0, begin);
    if (held.size() > kMostLineBytes || skipping) {
      too_long = too_long || !skipping;
      skipping = true;
      offset_ += static_cast<std::int64_t>(held.size());
      held.clear();
    }
  }
}

}  // namespace lockstep
