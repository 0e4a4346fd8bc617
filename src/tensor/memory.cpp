#include "tensor/memory.h"

#include <utility>

#include "base/error.h"
#include "base/integers.h"
#include "tensor/cpu/heap.h"
#include "tensor/cuda/device.h"
#include "tensor/meta/nothing.h"

namespace lockstep {

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    release();
    memory_ = std::exchange(other.memory_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    tag_ = other.tag_;
    unit_ = std::move(other.unit_);
  }
  return *this;
}

void Buffer::release() noexcept {
  if (!memory_) return;
  memory_->give_back(data_, bytes_);
  memory_->ledger().add(tag_, unit_, -bytes_);
  memory_ = nullptr;
  data_ = nullptr;
  bytes_ = 0;
}

Buffer Memory::allocate(std::int64_t bytes, Tag tag, const std::string& unit) {
  LOCKSTEP_CHECK(bytes >= 0, "a buffer of {} bytes", bytes);
  Buffer buffer;
  buffer.bytes_ = round_up(bytes, kAlignment);
  buffer.tag_ = tag;
  buffer.unit_ = unit;
  if (buffer.bytes_ > 0) {
    buffer.data_ = take(buffer.bytes_);
    if (!buffer.data_ && device_ != Device::meta)
      throw UserError(ExitCode::does_not_fit,
                      fmt::format("out of memory on {}: {} bytes for {}{}{}, {} bytes already held", name_of(device_),
                                  buffer.bytes_, name_of(tag), unit.empty() ? "" : " of ", unit, ledger_.current()),
                      "end other programs, or see `lockstep plan` for what needs less");
  }
  buffer.memory_ = this;
  ledger_.add(tag, unit, buffer.bytes_);
  return buffer;
}

std::unique_ptr<Memory> make_memory(Device device, Ledger& ledger, std::int64_t arena_bytes) {
  switch (device) {
    case Device::cpu:
      return std::make_unique<cpu::Heap>(ledger);
    case Device::meta:
      return std::make_unique<meta::Nothing>(ledger);
    case Device::cuda:
      return std::make_unique<cuda::DeviceMemory>(ledger, arena_bytes);
    case Device::disk:  // in a folder: disk::FileMemory
      break;
  }
  LOCKSTEP_CHECK(false, "device {}", static_cast<int>(device));
}

}  // namespace lockstep
