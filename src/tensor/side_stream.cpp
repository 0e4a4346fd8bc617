#include "tensor/side_stream.h"

#include <cstring>

#include "base/error.h"
#include "tensor/cpu/stream.h"
#include "tensor/cuda/device.h"

namespace lockstep {

namespace {
std::unique_ptr<Stream> beside(Device device, Memory& nowhere) {
  if (device == Device::cuda) return std::make_unique<cuda::Stream>(nowhere);
  LOCKSTEP_CHECK(device == Device::cpu, "a side stream on {}", name_of(device));
  return std::make_unique<cpu::Stream>(nowhere, 1);
}
}  // namespace

// Scratch "taken" from meta's memory is counted in a ledger nobody reads, and is not there.
SideStream::SideStream(Device device)
    : nowhere_(make_memory(Device::meta, nothing_)), stream_(beside(device, *nowhere_)) {}

void copy_later(void* to, const void* from, std::int64_t bytes, Stream& stream) {
  if (bytes == 0) return;
  if (stream.device() == Device::cuda) return cuda::copy_later(to, from, bytes, stream);
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace lockstep
