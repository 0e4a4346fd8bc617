#include "data/token_file_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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

// What a reader of the partial file sees from byte `from` on, in pieces.
template <class Use>
void each_piece(int fd, std::int64_t from, std::int64_t end, const std::filesystem::path& path, Use use) {
  std::vector<std::byte> piece(kBufferBytes);
  while (from < end) {
    const auto most = static_cast<std::size_t>(std::min<std::int64_t>(end - from, std::ssize(piece)));
    const ssize_t count = ::pread(fd, piece.data(), most, from);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail("read", path);
    use(std::span<const std::byte>(piece).first(static_cast<std::size_t>(count)));
    from += count;
  }
}

}  // namespace

std::filesystem::path TokenFileWriter::partial_of(const std::filesystem::path& path) {
  std::filesystem::path partial = path;
  return partial += ".partial";
}

std::filesystem::path TokenFileWriter::partial_index_of(const std::filesystem::path& path) {
  std::filesystem::path partial = path;
  return partial += ".partial-index";
}

std::filesystem::path TokenFileWriter::partial_marks_of(const std::filesystem::path& path) {
  std::filesystem::path partial = path;
  return partial += ".partial-targets";
}

TokenFileWriter::TokenFileWriter(std::filesystem::path path, std::int64_t vocabulary, Marks marks)
    : path_(std::move(path)), marks_(marks) {
  header_.vocabulary = vocabulary;
  header_.width = token_width(vocabulary);
  open(true);
  tokens_.written = kTokenFileHeaderBytes;
}

TokenFileWriter::TokenFileWriter(std::filesystem::path path, std::int64_t vocabulary, const WrittenTokens& before,
                                 Marks marks)
    : path_(std::move(path)), marks_(marks), keep_(true) {
  header_.vocabulary = vocabulary;
  header_.width = token_width(vocabulary);
  header_.tokens = before.tokens;
  header_.documents = before.documents;
  header_.targets = before.targets;
  open(false);
  try {
    take_up(tokens_, kTokenFileHeaderBytes + before.tokens * header_.width);
    take_up(starts_, before.documents * 8);
    if (marks_ == Marks::yes) take_up_marks();
    each_piece(tokens_.fd, kTokenFileHeaderBytes, tokens_.written, tokens_.path,
               [this](std::span<const std::byte> bytes) { payload_.update(bytes); });
  } catch (...) {
    for (const Appended* file : files()) ::close(file->fd);
    throw;
  }
  keep_ = false;
}

void TokenFileWriter::open(bool anew) {
  tokens_.path = partial_of(path_);
  starts_.path = partial_index_of(path_);
  targets_.path = partial_marks_of(path_);
  for (Appended* file : files()) {
    file->buffer.reserve(kBufferBytes);
    file->fd = ::open(file->path.c_str(), O_RDWR | O_CREAT | (anew ? O_TRUNC : 0) | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (file->fd >= 0) continue;
    const int error = errno;
    for (const Appended* before : files()) {
      if (before == file) break;
      ::close(before->fd);
      if (anew) ::unlink(before->path.c_str());
    }
    errno = error;
    fail("open", file->path);
  }
}

// What was written after the last sync() is written again.
void TokenFileWriter::take_up(Appended& file, std::int64_t bytes) const {
  const off_t size = ::lseek(file.fd, 0, SEEK_END);
  if (size < bytes)
    throw UserError(ExitCode::bad_input_file,
                    fmt::format("{}: has {} bytes, and {} were written before", file.path.string(), size, bytes),
                    "remove the .progress file beside it to begin anew");
  file.written = bytes;
}

// The marks of the last tokens may be in a byte that is not full.
void TokenFileWriter::take_up_marks() {
  take_up(targets_, (header_.tokens + 7) / 8);
  targets_.written = header_.tokens / 8;
  const std::int64_t used = header_.tokens % 8;
  each_piece(targets_.fd, targets_.written, targets_.written + (used > 0 ? 1 : 0), targets_.path,
             [&](std::span<const std::byte> byte) {
               bits_ = static_cast<std::uint8_t>(std::to_integer<unsigned>(byte[0]) & ((1U << used) - 1));
             });
}

TokenFileWriter::~TokenFileWriter() {
  if (tokens_.fd < 0) return;
  for (const Appended* file : files()) {
    ::close(file->fd);
    if (!keep_) ::unlink(file->path.c_str());
  }
}

void TokenFileWriter::add(std::span<const std::int32_t> document) {
  LOCKSTEP_CHECK(marks_ == Marks::no, "{}: a document without marks", path_.string());
  write_document(document);
}

void TokenFileWriter::write_document(std::span<const std::int32_t> document) {
  LOCKSTEP_CHECK(tokens_.fd >= 0, "{}: the token file is finished", path_.string());
  for (const std::int32_t id : document) {
    LOCKSTEP_CHECK(id >= 0 && id < header_.vocabulary, "{}: id {} in a vocabulary of {}", path_.string(), id,
                   header_.vocabulary);
  }
  if (document.empty()) return;
  const auto start = static_cast<std::uint64_t>(header_.tokens);
  append(starts_, std::as_bytes(std::span(&start, 1)));
  ++header_.documents;
  header_.tokens += static_cast<std::int64_t>(document.size());
  const auto width = static_cast<std::size_t>(header_.width);
  std::array<std::byte, 4096> piece;
  for (std::size_t at = 0; at < document.size();) {
    std::size_t used = 0;
    // Little-endian: the low bytes come first.
    for (; at < document.size() && used < piece.size(); ++at, used += width)
      std::memcpy(piece.data() + used, &document[at], width);
    append(tokens_, std::span(piece).first(used));
  }
}

void TokenFileWriter::add(std::span<const std::int32_t> document, std::span<const std::uint8_t> targets) {
  LOCKSTEP_CHECK(marks_ == Marks::yes && targets.size() == document.size(), "{}: marks of {} tokens for {}",
                 path_.string(), targets.size(), document.size());
  mark(targets);
  write_document(document);
}

// Before the tokens are counted.
void TokenFileWriter::mark(std::span<const std::uint8_t> targets) {
  std::int64_t at = header_.tokens;
  for (const std::uint8_t target : targets) {
    bits_ = static_cast<std::uint8_t>(bits_ | (target != 0 ? 1U : 0U) << (at % 8));
    header_.targets += target != 0 ? 1 : 0;
    if (++at % 8 != 0) continue;
    append(targets_, std::as_bytes(std::span(&bits_, 1)));
    bits_ = 0;
  }
}

WrittenTokens TokenFileWriter::sync() {
  for (Appended* file : files()) {
    flush(*file);
    if (file == &targets_ && header_.tokens % 8 > 0)
      write_at(file->fd, file->written, std::as_bytes(std::span(&bits_, 1)), file->path);
    if (::fdatasync(file->fd) != 0) fail("fsync", file->path);
  }
  return written();
}

void TokenFileWriter::finish() {
  LOCKSTEP_CHECK(tokens_.fd >= 0, "{}: the token file is finished", path_.string());
  LOCKSTEP_CHECK(marks_ == Marks::no || header_.marked(), "{}: no token is a target", path_.string());
  const auto pad = [this](std::int64_t from, std::int64_t to) {
    const std::byte zero{0};
    for (; from < to; ++from) append(tokens_, {&zero, 1});
  };
  const auto append_all = [this](Appended& file) {
    flush(file);
    each_piece(file.fd, 0, file.written, file.path,
               [this](std::span<const std::byte> bytes) { append(tokens_, bytes); });
  };
  pad(header_.tokens_at() + header_.tokens * header_.width, header_.index_at());
  append_all(starts_);
  if (marks_ == Marks::yes) {
    pad(header_.index_at() + header_.documents * 8, header_.marks_at());
    if (header_.tokens % 8 > 0) append(targets_, std::as_bytes(std::span(&bits_, 1)));
    append_all(targets_);
  }
  flush(tokens_);
  header_.payload_checksum = payload_.value();
  // Last, so that what a killed writer leaves is not a token file.
  write_at(tokens_.fd, 0, encode(header_), tokens_.path);

  if (::fsync(tokens_.fd) != 0) fail("fsync", tokens_.path);
  if (::rename(tokens_.path.c_str(), path_.c_str()) != 0) fail("rename", path_);
  ::close(std::exchange(tokens_.fd, -1));  // after fsync there is nothing left that it could fail to write
  for (Appended* file : files().subspan(1)) {
    ::close(std::exchange(file->fd, -1));
    ::unlink(file->path.c_str());
  }
  sync_folder(path_.has_parent_path() ? path_.parent_path() : ".");
}

void TokenFileWriter::append(Appended& file, std::span<const std::byte> bytes) {
  if (file.buffer.size() + bytes.size() > kBufferBytes) flush(file);
  file.buffer.insert(file.buffer.end(), bytes.begin(), bytes.end());
}

void TokenFileWriter::flush(Appended& file) {
  write_at(file.fd, file.written, file.buffer, file.path);
  if (&file == &tokens_) payload_.update(file.buffer);
  file.written += static_cast<std::int64_t>(file.buffer.size());
  file.buffer.clear();
}

}  // namespace lockstep
