#include "kernels/host_store.h"

#include <cstring>

namespace lockstep::cpu {

void host_store(const HostStoreArgs& a, lockstep::Stream& /*stream*/) {
  std::memcpy(a.to, a.from.raw(), static_cast<std::size_t>(a.from.bytes()));
}

}  // namespace lockstep::cpu
