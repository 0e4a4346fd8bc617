// Where offloaded optimizer state is updated under memory.offload_update = "auto": on the device, to which it is
// brought, or on the host's cores. Both give the same bits, so the faster one is taken.
//
// Measured once, when a run begins: the optimizer's kernel on the threads of this rank with state in the host's memory,
// and copies to the device and back, both at once. A step's time is predicted by the slowest part of each way: of the
// device's, the state over the link in either direction; of the host's, the kernel, gradients that come or weights that
// go. The choice is written into the resolved run file, so a run from that file does not measure again.
#pragma once
#include <optional>
#include <string>

#include "comm/communicator.h"
#include "spec/run/run_spec.h"
#include "tensor/device.h"

namespace lockstep {

struct UpdateRates {
  double elements_per_s;        // of an update on the host's threads
  double up_per_s, down_per_s;  // bytes to the device and from it, both at once
};

// Seconds per element.
struct UpdateSeconds {
  double device, host;
  OffloadUpdate faster() const { return host < device ? OffloadUpdate::host : OffloadUpdate::device; }
};
UpdateSeconds update_seconds(const RunSpec& spec, const UpdateRates& rates);

// On this device, and on the host with this many threads. Takes some 0.5 GiB of the host's memory and 128 MiB of the
// device's while it lasts, which is below a second.
UpdateRates measure_update_rates(const RunSpec& spec, Device device, int threads);

// The mean over the ranks, the same on all of them. All call it; none: alone.
UpdateSeconds agreed_seconds(UpdateSeconds mine, Communicator* ranks);

// Replaces "auto" in the spec by the choice, and says why; does nothing where there is nothing to choose.
// All ranks call it and choose the same.
std::optional<std::string> choose_update(RunSpec& spec, Device device, int threads, Communicator* ranks);

}  // namespace lockstep
