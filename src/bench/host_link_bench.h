// How fast bytes go between a device and memory of the host as offload uses it (tensor/host_memory.h): to the device,
// from it, and both at once, each way in a stream of its own.
//
// On the cpu, which is its own host, it is a copy between two memories.
#pragma once
#include <cstdint>

#include "tensor/device.h"

namespace lockstep {

// Bytes per second, medians; of both at once, each way.
struct HostLinkRate {
  double to_device = 0, from_device = 0, both = 0;
};

// `bytes` are taken twice on the host and twice on the device meanwhile. UserError (does_not_fit) where they are not
// there.
HostLinkRate measure_host_link(Device device, std::int64_t bytes = std::int64_t{256} << 20, int rounds = 5);

}  // namespace lockstep
