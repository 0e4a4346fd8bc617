#include "tensor/host_call.h"

#include <utility>

namespace lockstep {

void call_later(std::function<void()> call, Stream& stream) {
  if (stream.device() == Device::cuda) return cuda::call_later(std::move(call), stream);
  call();
}

}  // namespace lockstep
