#include "tensor/host_memory.h"

#include "base/error.h"
#include "tensor/cpu/heap.h"
#include "tensor/cuda/pinned_memory.h"
#include "tensor/meta/nothing.h"

namespace lockstep {

std::unique_ptr<Memory> make_host_memory(Device beside, Ledger& ledger) {
  switch (beside) {
    case Device::cpu:
      return std::make_unique<cpu::Heap>(ledger);
    case Device::meta:
      return std::make_unique<meta::Nothing>(ledger);
    case Device::cuda:
      return std::make_unique<cuda::PinnedMemory>(ledger);
    case Device::disk:
      break;
  }
  LOCKSTEP_CHECK(false, "memory beside device {}", static_cast<int>(beside));
}

}  // namespace lockstep
