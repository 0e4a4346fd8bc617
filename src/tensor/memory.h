// Memory of one device and the buffers taken from it.
//
// A Memory hands out Buffers and writes every byte into its Ledger. A Buffer owns its bytes until it is destroyed or
// moved from; it must not outlive its Memory. Addresses are aligned to 256 bytes and sizes are rounded up to that, on
// every device, so that `meta` counts what a real device takes. New bytes are not cleared. Thread-safe. Failure:
// UserError (does_not_fit) naming the tag, the unit and the bytes asked for.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "tensor/device.h"
#include "tensor/ledger.h"

namespace lockstep {

inline constexpr std::int64_t kAlignment = 256;

class Memory;

class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer() { release(); }

  void* data() const { return data_; }  // null on meta
  std::int64_t bytes() const { return bytes_; }
  Memory* memory() const { return memory_; }

 private:
  friend class Memory;
  void release() noexcept;

  Memory* memory_ = nullptr;
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
  Tag tag_ = Tag::workspace;
  std::string unit_;
};

class Memory {
 public:
  virtual ~Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Device device() const { return device_; }
  Ledger& ledger() const { return ledger_; }
  Buffer allocate(std::int64_t bytes, Tag tag, const std::string& unit = "");

 protected:
  Memory(Device device, Ledger& ledger) : device_(device), ledger_(ledger) {}

 private:
  friend class Buffer;
  virtual void* take(std::int64_t bytes) = 0;  // null when there is not enough (meta: always)
  virtual void give_back(void* data, std::int64_t bytes) noexcept = 0;

  Device device_;
  Ledger& ledger_;
};

// The memory of a device: the host's heap for cpu, the GPU's for cuda, nothing at all for meta. The ledger outlives it.
// `arena_bytes` of a GPU's memory are taken at once and buffers taken from them; 0 takes each by itself, as the cpu
// does.
std::unique_ptr<Memory> make_memory(Device device, Ledger& ledger, std::int64_t arena_bytes = 0);

}  // namespace lockstep
