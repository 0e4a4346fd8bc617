#include "kernels/host_store.h"

#include "base/error.h"
#include "kernels/operands.h"

namespace lockstep {

void host_store(const HostStoreArgs& a, Stream& stream) {
  LOCKSTEP_CHECK(a.from.contiguous() && size_of(a.from.dtype()) % 4 == 0, "host_store of {} {}",
                 a.from.contiguous() ? "contiguous" : "strided", name_of(a.from.dtype()));
  LOCKSTEP_CHECK(a.from.device() == stream.device(), "host_store of a tensor on {} in a stream of {}",
                 name_of(a.from.device()), name_of(stream.device()));
  if (a.from.bytes() == 0) return;
  dispatch(cpu::host_store, cuda::host_store, meta::host_store, a, stream);
}

}  // namespace lockstep
