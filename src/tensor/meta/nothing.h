// The Memory of `meta`: every buffer is granted and none exists. Only the ledger sees it.
#pragma once
#include "tensor/memory.h"

namespace lockstep::meta {

class Nothing final : public Memory {
 public:
  explicit Nothing(Ledger& ledger) : Memory(Device::meta, ledger) {}

 private:
  void* take(std::int64_t) override { return nullptr; }
  void give_back(void*, std::int64_t) noexcept override {}
};

}  // namespace lockstep::meta
