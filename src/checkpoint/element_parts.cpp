#include "checkpoint/element_parts.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "tensor/transfer.h"

namespace lockstep {

void each_part(const ConstTensor& tensor, Stream* stream, const std::function<void(const void*, std::int64_t)>& body) {
  const bool here = tensor.device() == Device::cpu;
  if (here && tensor.contiguous()) return body(tensor.raw(), tensor.bytes());
  LOCKSTEP_CHECK(here || stream, "a tensor on {}, not on the host", name_of(tensor.device()));
  const std::int64_t size = size_of(tensor.dtype());
  const bool flat = tensor.contiguous();
  const ConstTensor rows = flat ? tensor.reshape({tensor.elements()}) : tensor;
  const std::int64_t unit = flat ? size : rows.dim(1) * size;  // bytes that stay together
  const std::int64_t each = std::max<std::int64_t>(1, kPartBytes / unit);
  const auto room =
      std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(std::min(each, rows.dim(0)) * unit));
  for (std::int64_t at = 0; at < rows.dim(0); at += each) {
    const ConstTensor part = rows.slice(0, at, std::min(each, rows.dim(0) - at));
    if (here)
      for (std::int64_t i = 0; i < part.dim(0); ++i)
        std::memcpy(room.get() + i * unit, static_cast<const std::byte*>(part.raw()) + i * part.stride(0) * size,
                    static_cast<std::size_t>(unit));
    else
      download(room.get(), part, *stream);
    body(room.get(), part.dim(0) * unit);
  }
}

}  // namespace lockstep
