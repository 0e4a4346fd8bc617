#include "data/token_file_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/system_failure.h"

namespace lockstep {
namespace {

constexpr std::size_t kBufferBytes = 1 << 20;

[[noreturn]] void fail(const char* call, const std::filesystem::path& path) {
  throw EnvironmentError(system_failure(path, call, errno));
}

void write_at(int fd, std::int64_t offset, std::span<const std::byte> bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write", path);
    offset += written;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

// Makes the rename itself durable.
void sync_folder(const std::filesystem::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail("open", folder);
  const int result = ::fsync(fd), error = errno;
  ::close(fd);
  errno = error;
  if (result != 0 && error != EINVAL) fail("fsync", folder);  // EINVAL: a file system whose folders need no sync
}

}  // namespace

TokenFileWriter::TokenFileWriter(std::filesystem::path path, std::int64_t vocabulary)
    : path_(std::move(path)), partial_(path_) {
  header_.vocabulary = vocabulary;
  header_.width = token_width(vocabulary);
  buffer_.reserve(kBufferBytes);
  partial_ += ".partial";
  fd_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd_ < 0) fail("open", partial_);
}

TokenFileWriter::~TokenFileWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(partial_.c_str());
}

void TokenFileWriter::add(std::span<const std::int32_t> document) {
  LOCKSTEP_CHECK(fd_ >= 0, "{}: the token file is finished", path_.string());
  for (const std::int32_t id : document) {
    LOCKSTEP_CHECK(id >= 0 && id < header_.vocabulary, "{}: id {} in a vocabulary of {}", path_.string(), id,
                   header_.vocabulary);
  }
  if (document.empty()) return;
  starts_.push_back(static_cast<std::uint64_t>(header_.tokens));
  header_.tokens += static_cast<std::int64_t>(document.size());
  for (const std::int32_t id : document) {  // little-endian: the low bytes come first
    append(std::as_bytes(std::span(&id, 1)).first(static_cast<std::size_t>(header_.width)));
  }
}

void TokenFileWriter::finish() {
  LOCKSTEP_CHECK(fd_ >= 0, "{}: the token file is finished", path_.string());
  const std::byte zero{0};
  for (std::int64_t at = header_.tokens_at() + header_.tokens * header_.width; at < header_.index_at(); ++at) {
    append({&zero, 1});
  }
  header_.documents = static_cast<std::int64_t>(starts_.size());
  for (const std::uint64_t start : starts_) append(std::as_bytes(std::span(&start, 1)));
  flush();
  header_.payload_checksum = payload_.value();
  // Last, so that what a killed writer leaves is not a token file.
  write_at(fd_, 0, encode(header_), partial_);

  if (::fsync(fd_) != 0) fail("fsync", partial_);
  if (::rename(partial_.c_str(), path_.c_str()) != 0) fail("rename", path_);
  ::close(std::exchange(fd_, -1));  // after fsync there is nothing left that it could fail to write
  sync_folder(path_.has_parent_path() ? path_.parent_path() : ".");
}

void TokenFileWriter::append(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() > kBufferBytes) flush();
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

void TokenFileWriter::flush() {
  write_at(fd_, written_, buffer_, partial_);
  payload_.update(buffer_);
  written_ += static_cast<std::int64_t>(buffer_.size());
  buffer_.clear();
}

}  // namespace lockstep
