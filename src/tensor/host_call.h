// A call of the host's own code in a stream's order.
//
// On a GPU a thread of the driver makes it when the stream has reached it, and the stream continues when it returns:
// such code makes no call of CUDA and waits for nothing that needs one, or it would wait for itself. On the cpu and on
// meta it is made at once. It must not throw, and what it uses must live until then.
#pragma once
#include <functional>

#include "tensor/stream.h"

namespace lockstep {

void call_later(std::function<void()> call, Stream& stream);

namespace cuda {
void call_later(std::function<void()> call, lockstep::Stream& stream);
}

}  // namespace lockstep
