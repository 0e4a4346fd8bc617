#include "tensor/transfer.h"

#include <cstring>

namespace lockstep {

void upload(Tensor to, const void* from, Stream& stream) {
  LOCKSTEP_CHECK(to.contiguous() && to.device() == stream.device(), "upload to a tensor {} on {}", to.shape(),
                 name_of(to.device()));
  if (to.device() == Device::cpu && to.bytes() > 0) std::memcpy(to.raw(), from, to.bytes());
}

void download(void* to, ConstTensor from, Stream& stream) {
  LOCKSTEP_CHECK(from.contiguous() && from.device() == stream.device(), "download of a tensor {} on {}", from.shape(),
                 name_of(from.device()));
  if (from.bytes() == 0) return;
  if (from.device() == Device::cpu)
    std::memcpy(to, from.raw(), from.bytes());
  else
    std::memset(to, 0, from.bytes());
}

}  // namespace lockstep
