// Memory of one process that the others of its host can map: tensors in it are summed in place.
//
// Every process has one file without a name (memfd), which only the processes keep alive, so nothing is left of it
// however they end. A buffer is a range of the file, a segment, that is never used a second time: its offset names it
// for good. The memory of a segment is given back with its buffer, whoever still maps it. Others open the file through
// /proc once, when the world begins, and map segments when they first need them. The file's first page counts the
// segments that are gone; a process that sees the count change unmaps what it had mapped.
//
// Huge pages are asked for; the host decides (/sys/kernel/mm/transparent_hugepage/shmem_enabled).
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "comm/processes/window.h"
#include "tensor/memory.h"

namespace lockstep::processes {

// Where a tensor is, as other processes can read it.
struct TensorLocation {
  std::int64_t segment = 0, bytes = 0;  // of the whole segment; none: not in the file
  std::int64_t at = 0;                  // of the tensor in it
  std::uint64_t gone = 0;               // segments that were gone then
};

struct SharedFileHeader {
  std::uint64_t key;                // by which another process knows that it has opened the right file
  std::atomic<std::uint64_t> gone;  // segments
};

// This process's. Thread-safe. EnvironmentError where the system has no such files.
class SharedFile {
 public:
  SharedFile();
  ~SharedFile();
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  // What another process needs to open it, as text.
  std::string address() const;
  TensorLocation find(const void* data, std::int64_t bytes) const;

  void* take(std::int64_t bytes);  // null where there is not enough
  void give_back(void* data) noexcept;

 private:
  struct Segment {
    std::int64_t offset, bytes;
  };
  int file_ = -1;
  std::unique_ptr<Mapping> head_;
  mutable std::mutex mutex_;
  std::int64_t end_;
  std::map<const char*, Segment> segments_;  // by address
};

// Buffers in it. Each keeps the file, so that it may outlive the world.
class SharedMemory final : public Memory {
 public:
  SharedMemory(std::shared_ptr<SharedFile> file, Ledger& ledger)
      : Memory(Device::cpu, ledger), file_(std::move(file)) {}

 private:
  void* take(std::int64_t bytes) override { return file_->take(bytes); }
  void give_back(void* data, std::int64_t) noexcept override {
    if (data) file_->give_back(data);
  }
  std::shared_ptr<SharedFile> file_;
};

// Another process's file, as this one maps it. One thread at a time.
class PeerFile {
 public:
  explicit PeerFile(const std::string& address);  // EnvironmentError where it is refused
  ~PeerFile();
  PeerFile(const PeerFile&) = delete;
  PeerFile& operator=(const PeerFile&) = delete;

  // The segment, for as long as it is held, and kept here while none goes. (An operation can be over, and its tensors
  // gone, before this rank has looked at it.)
  std::shared_ptr<Mapping> map(const TensorLocation& location);
  // Unmaps everything where some of it is gone: the rest is mapped again when it is needed.
  void tidy();

 private:
  int file_ = -1;
  std::unique_ptr<Mapping> head_;
  std::uint64_t seen_gone_ = 0;
  std::map<std::int64_t, std::shared_ptr<Mapping>> segments_;  // by offset
};

// The files of all processes of a host, as one process has them.
struct SharedFiles {
  std::shared_ptr<SharedFile> own;
  std::vector<std::unique_ptr<PeerFile>> others;  // by process slot; null at its own

  void tidy() {
    for (const auto& other : others)
      if (other) other->tidy();
  }
};

}  // namespace lockstep::processes
