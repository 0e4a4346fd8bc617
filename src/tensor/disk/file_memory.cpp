#include "tensor/disk/file_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "base/checksum.h"
#include "base/error.h"
#include "base/integers.h"

namespace lockstep::disk {

namespace {

namespace fs = std::filesystem;

// Bytes of addresses of a file in this folder: as many as its disk has, which cost nothing. But a process has 2^47 of
// them in all, for the files of many ranks.
std::int64_t addresses_for(const fs::path& folder) {
  constexpr std::int64_t kMost = std::int64_t{1} << 42, kLeast = std::int64_t{1} << 30;
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) != 0) return kLeast;
  const std::int64_t blocks = static_cast<std::int64_t>(status.f_blocks);
  const std::int64_t most_blocks = kMost / std::max<std::int64_t>(1, static_cast<std::int64_t>(status.f_frsize));
  if (blocks == 0 || blocks > most_blocks) return kMost;
  return std::max(kLeast, round_up(blocks * static_cast<std::int64_t>(status.f_frsize), kBlock));
}

// Which file has which addresses: the only way from a tensor to its file.
struct Owners {
  std::mutex mutex;
  std::map<const char*, FileMemory*> by_base;
};
Owners& owners() {
  static Owners all;
  return all;
}

[[noreturn]] void fail(const fs::path& path, const char* call) {
  throw EnvironmentError(fmt::format("{}: {} failed: {}", path.string(), call, std::strerror(errno)));
}

// -1 where the flags are not possible there.
int open_with(const fs::path& folder, int flags) {
  const int file = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return file;
  std::string name = (folder / "offload-XXXXXX").string();
  const int named = ::mkostemp(name.data(), O_CLOEXEC | flags);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

std::span<const std::byte> block_at(const void* bytes) {
  return {static_cast<const std::byte*>(bytes), static_cast<std::size_t>(kBlock)};
}

void check_aligned(const void* host) {
  LOCKSTEP_CHECK(reinterpret_cast<std::uintptr_t>(host) % 4096 == 0, "a buffer at {} for direct reads and writes",
                 host);
}

}  // namespace

void FileMemory::Free::operator()(void* data) const { std::free(data); }

FileMemory::FileMemory(Ledger& ledger, const fs::path& folder, std::unique_ptr<RawIo> raw)
    : Memory(Device::disk, ledger),
      folder_(folder),
      reserved_(addresses_for(folder)),
      ranges_(reserved_),
      room_(std::aligned_alloc(kBlock, kRoomBlocks * kBlock)) {
  const NamelessFile opened = open_nameless(folder);
  file_ = opened.file;
  direct_ = opened.direct;
  base_ = ::mmap(nullptr, static_cast<std::size_t>(reserved_), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                 -1, 0);
  if (base_ == MAP_FAILED) {
    ::close(file_);
    fail(folder, "mmap");
  }
  if (!raw) raw = make_io(FileIo::kDepth);
  io_ = std::make_unique<FileIo>(file_, folder.string(), std::move(raw));
  const std::lock_guard lock(owners().mutex);
  owners().by_base[static_cast<const char*>(base_)] = this;
}

FileMemory::~FileMemory() {
  {
    const std::lock_guard lock(owners().mutex);
    owners().by_base.erase(static_cast<const char*>(base_));
  }
  io_.reset();
  ::close(file_);
  ::munmap(base_, static_cast<std::size_t>(reserved_));
}

FileMemory& FileMemory::of(const void* address) {
  const std::lock_guard lock(owners().mutex);
  const auto after = owners().by_base.upper_bound(static_cast<const char*>(address));
  LOCKSTEP_CHECK(after != owners().by_base.begin(), "{} is in no file", address);
  const auto& [base, memory] = *std::prev(after);
  LOCKSTEP_CHECK(static_cast<const char*>(address) < base + memory->reserved_, "{} is in no file", address);
  return *memory;
}

void* FileMemory::take(std::int64_t bytes) {
  const std::int64_t size = round_up(bytes, kBlock);
  const std::int64_t offset = ranges_.take(size);
  if (offset < 0) return nullptr;
  int status = 0;
  do status = ::posix_fallocate(file_, offset, size);
  while (status == EINTR);
  if (status != 0) {
    ranges_.give_back(offset, size);
    if (status == ENOSPC || status == EFBIG || status == EDQUOT) return nullptr;
    errno = status;
    fail(folder_, "posix_fallocate");
  }
  const auto end = static_cast<std::size_t>((offset + size) / kBlock);
  if (sums_.size() < end) sums_.resize(end);
  std::fill(sums_.begin() + offset / kBlock, sums_.begin() + static_cast<std::ptrdiff_t>(end), Sum{});
  return static_cast<char*>(base_) + offset;
}

void FileMemory::give_back(void* data, std::int64_t bytes) noexcept {
  ranges_.give_back(offset_of(data), round_up(bytes, kBlock));
}

void FileMemory::check_block(std::int64_t block, void* bytes) const {
  const Sum& sum = sums_[static_cast<std::size_t>(block)];
  if (!sum.written) {  // whatever was there before
    std::memset(bytes, 0, static_cast<std::size_t>(kBlock));
    return;
  }
  if (checksum(block_at(bytes)) == sum.value) return;
  throw EnvironmentError(
      fmt::format("{}: the disk returned other bytes than were written there (offset {} of the run's state); check the "
                  "disk, and resume from a checkpoint with memory.offload_folder on another",
                  folder_.string(), block * kBlock));
}

FileMemory::Moving FileMemory::start_read(void* to, const void* at, std::int64_t bytes) {
  check_aligned(to);
  const std::int64_t offset = offset_of(at), blocks = ceil_div(bytes, kBlock);
  LOCKSTEP_CHECK(offset % kBlock == 0, "a read of blocks from {} on", offset);
  return {io_->read(to, offset, blocks * kBlock), true, to, offset / kBlock, blocks};
}

FileMemory::Moving FileMemory::start_write(void* at, const void* from, std::int64_t bytes) {
  check_aligned(from);
  const std::int64_t offset = offset_of(at), blocks = ceil_div(bytes, kBlock);
  LOCKSTEP_CHECK(offset % kBlock == 0, "a write of blocks from {} on", offset);
  for (std::int64_t i = 0; i < blocks; ++i)
    sums_[static_cast<std::size_t>(offset / kBlock + i)] = {
        checksum(block_at(static_cast<const char*>(from) + i * kBlock)), true};
  return {io_->write(from, offset, blocks * kBlock), false, nullptr, offset / kBlock, blocks};
}

void FileMemory::finish(const Moving& moving) {
  io_->wait(moving.ticket);
  for (std::int64_t i = 0; moving.reads && i < moving.blocks; ++i)
    check_block(moving.first + i, static_cast<char*>(moving.host) + i * kBlock);
}

void FileMemory::read(void* to, const void* at, std::int64_t bytes) {
  for (std::int64_t done = 0; done < bytes;) {
    const std::int64_t offset = offset_of(at) + done, inside = offset % kBlock;
    const std::int64_t count = std::min(kRoomBlocks * kBlock - inside, bytes - done);
    finish(start_read(room_.get(), static_cast<char*>(base_) + offset - inside, inside + count));
    std::memcpy(static_cast<char*>(to) + done, static_cast<char*>(room_.get()) + inside,
                static_cast<std::size_t>(count));
    done += count;
  }
}

void FileMemory::write(void* at, const void* from, std::int64_t bytes) {
  for (std::int64_t done = 0; done < bytes;) {
    const std::int64_t offset = offset_of(at) + done, inside = offset % kBlock;
    const std::int64_t count = std::min(kRoomBlocks * kBlock - inside, bytes - done);
    void* const first = static_cast<char*>(base_) + offset - inside;
    if (inside > 0 || count % kBlock > 0) finish(start_read(room_.get(), first, inside + count));  // the edges stay
    std::memcpy(static_cast<char*>(room_.get()) + inside, static_cast<const char*>(from) + done,
                static_cast<std::size_t>(count));
    finish(start_write(first, room_.get(), inside + count));
    done += count;
  }
}

NamelessFile open_nameless(const fs::path& folder) {
  NamelessFile opened{.file = open_with(folder, O_DIRECT), .direct = true};
  if (opened.file < 0 && errno == EINVAL) opened = {.file = open_with(folder, 0), .direct = false};
  if (opened.file < 0) fail(folder, "open");
  return opened;
}

std::int64_t free_bytes_in(const fs::path& folder) {
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) != 0) fail(folder, "statvfs");
  return static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
}

}  // namespace lockstep::disk
