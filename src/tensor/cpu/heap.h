// The host's heap as a Memory.
#pragma once
#include "tensor/memory.h"

namespace lockstep::cpu {

class Heap final : public Memory {
 public:
  explicit Heap(Ledger& ledger) : Memory(Device::cpu, ledger) {}

 private:
  void* take(std::int64_t bytes) override;
  void give_back(void* data, std::int64_t bytes) noexcept override;
};

}  // namespace lockstep::cpu
