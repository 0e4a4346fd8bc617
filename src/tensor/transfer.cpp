#include "tensor/transfer.h"

#include <cstring>

#include "tensor/cuda/device.h"

namespace lockstep {

namespace {
bool check_and_move(const ConstTensor& t, const Stream& stream) {
  LOCKSTEP_CHECK(t.contiguous(), "a copy of a tensor {} that is not contiguous", t.shape());
  LOCKSTEP_CHECK(t.device() == stream.device(), "a copy of a tensor on {} in a stream of {}", name_of(t.device()),
                 name_of(stream.device()));
  return t.bytes() > 0;
}
}  // namespace

void upload(Tensor to, const void* from, Stream& stream) {
  if (!check_and_move(to, stream)) return;
  switch (to.device()) {
    case Device::cpu:
      std::memcpy(to.raw(), from, to.bytes());
      break;
    case Device::meta:
      break;
    case Device::cuda:
      cuda::upload(to.raw(), from, to.bytes(), stream);
      break;
  }
}

void download(void* to, ConstTensor from, Stream& stream) {
  if (!check_and_move(from, stream)) return;
  switch (from.device()) {
    case Device::cpu:
      std::memcpy(to, from.raw(), from.bytes());
      break;
    case Device::meta:
      std::memset(to, 0, from.bytes());
      break;
    case Device::cuda:
      cuda::download(to, from.raw(), from.bytes(), stream);
      break;
  }
}

}  // namespace lockstep
