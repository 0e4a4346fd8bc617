#include "tensor/make_stream.h"

#include "base/error.h"
#include "tensor/cpu/stream.h"
#include "tensor/cuda/device.h"
#include "tensor/meta/stream.h"

namespace lockstep {

std::unique_ptr<Stream> make_stream(Memory& memory, int threads, Device stands_for) {
  switch (memory.device()) {
    case Device::cpu:
      return std::make_unique<cpu::Stream>(memory, threads);
    case Device::cuda:
      return std::make_unique<cuda::Stream>(memory);
    case Device::meta:
      return std::make_unique<meta::Stream>(
          memory, stands_for == Device::cuda ? cuda::kScratchBytes : threads * cpu::kScratchBytes);
    case Device::disk:
      break;
  }
  LOCKSTEP_CHECK(false, "device {}", static_cast<int>(memory.device()));
}

}  // namespace lockstep
