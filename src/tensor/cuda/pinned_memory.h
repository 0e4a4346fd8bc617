// Page-locked memory of the host, in buffers of any size.
#pragma once
#include "tensor/memory.h"

namespace lockstep::cuda {

class PinnedMemory final : public Memory {
 public:
  explicit PinnedMemory(Ledger& ledger) : Memory(Device::cpu, ledger) {}

 private:
  void* take(std::int64_t bytes) override;
  void give_back(void* data, std::int64_t bytes) noexcept override;
};

}  // namespace lockstep::cuda
