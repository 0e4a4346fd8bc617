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

void pack_later(void* to, const ConstTensor& from, Stream& stream) {
  if (from.contiguous()) return copy_later(to, from.raw(), from.bytes(), stream);
  LOCKSTEP_CHECK(from.dims() == 2 && from.stride(1) == 1, "rows of a tensor {} that is not rows", from.shape());
  const std::int64_t row = from.dim(1) * size_of(from.dtype()), pitch = from.stride(0) * size_of(from.dtype());
  if (stream.device() == Device::cuda) return cuda::copy_rows_later(to, from.raw(), from.dim(0), row, pitch, stream);
  for (std::int64_t i = 0; i < from.dim(0); ++i)
    std::memcpy(static_cast<char*>(to) + i * row, static_cast<const char*>(from.raw()) + i * pitch,
                static_cast<std::size_t>(row));
}

}  // namespace lockstep
