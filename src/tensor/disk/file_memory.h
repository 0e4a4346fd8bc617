// A file as the memory of offloaded state: NVMe offload.
//
// Its tensors have Device::disk. They have addresses, of a range that is reserved and can never be touched, so they can
// be cut and described like any others; upload() and download() (tensor/transfer.h) read and write them, and so does
// offload/staging.h, many bytes at a time. No kernel runs on them.
//
// The file has no name (O_TMPFILE, or unlinked where the file system has no such thing): when the process ends, by
// whatever means, its bytes are gone, and none can be found by a later run. Reads and writes pass the page cache by
// (O_DIRECT) where the file system can. Room on the disk is taken together with a buffer, so that a write cannot find
// the disk full later.
//
// Bytes are kept in blocks of kBlock, each with a checksum that is compared when it is read back: a disk that returns
// something else is named, and nothing is computed with it. New bytes are zero.
//
// One thread uses it, but addresses may be looked up from any. Failure: UserError (does_not_fit) of a buffer that the
// disk has no room for; EnvironmentError with the path and what the system said.
#pragma once
#include <filesystem>
#include <memory>
#include <vector>

#include "tensor/disk/file_io.h"
#include "tensor/memory.h"
#include "tensor/ranges.h"
#include "tensor/tensor.h"

namespace lockstep::disk {

inline constexpr std::int64_t kBlock = 64 << 10;  // bytes; where buffers begin, and what is read and written at once

// From where a buffer of the host begins to its first block: 0 of one without memory.
inline std::int64_t bytes_to_block(const Buffer& buffer) {
  return -static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(buffer.data())) & (kBlock - 1);
}

class FileMemory final : public Memory {
 public:
  // In a folder that is there. `raw` reads and writes; none: io_uring, or threads where there is none.
  FileMemory(Ledger& ledger, const std::filesystem::path& folder, std::unique_ptr<RawIo> raw = nullptr);
  ~FileMemory() override;

  // Whose address it is.
  static FileMemory& of(const void* address);

  // Any bytes, now.
  void read(void* to, const void* at, std::int64_t bytes);
  void write(void* at, const void* from, std::int64_t bytes);

  // Whole blocks (the last one of a buffer may be cut), beside the calling thread. `to` and `from` are aligned to
  // kBlock, have room for whole blocks, and stay as they are until finish(), which is called once for each.
  struct Moving {
    FileIo::Ticket ticket = 0;
    bool reads = false;
    void* host = nullptr;
    std::int64_t first = 0, blocks = 0;
  };
  Moving start_read(void* to, const void* at, std::int64_t bytes);
  Moving start_write(void* at, const void* from, std::int64_t bytes);
  void finish(const Moving& moving);  // after a read, the bytes are what was written

  bool direct() const { return direct_; }  // past the page cache

 private:
  void* take(std::int64_t bytes) override;
  void give_back(void* data, std::int64_t bytes) noexcept override;
  std::int64_t offset_of(const void* at) const { return static_cast<const char*>(at) - static_cast<char*>(base_); }
  void check_block(std::int64_t block, void* bytes) const;

  std::filesystem::path folder_;
  int file_ = -1;
  bool direct_ = false;
  std::int64_t reserved_;  // bytes of addresses
  void* base_ = nullptr;   // of those
  Ranges ranges_;
  std::unique_ptr<FileIo> io_;
  struct Sum {
    std::uint64_t value = 0;
    bool written = false;  // false: zeros
  };
  std::vector<Sum> sums_;  // by block
  struct Free {
    void operator()(void* data) const;
  };
  static constexpr std::int64_t kRoomBlocks = 64;
  std::unique_ptr<void, Free> room_;  // for what is read and written now
};

// A file in the folder that has no name, and who owns it closes. Direct: past the page cache, where that is possible.
struct NamelessFile {
  int file = -1;
  bool direct = false;
};
NamelessFile open_nameless(const std::filesystem::path& folder);

// Bytes that a file in this folder could still have.
std::int64_t free_bytes_in(const std::filesystem::path& folder);

}  // namespace lockstep::disk
