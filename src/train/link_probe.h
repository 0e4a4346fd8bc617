// How fast this run's ranks exchange, measured before the first step: what their messages are compared with.
//
// As `lockstep bench comm` measures it: an all-reduce of 1 MiB, its median of some calls, in bytes that a rank sends;
// and one of two numbers, for the latency. Some milliseconds on one host.
#pragma once
#include <optional>

#include "comm/communicator.h"

namespace lockstep {

struct LinkRate {
  double latency = 0;      // seconds
  double bytes_per_s = 0;  // that a rank sends
};

// All ranks call it, and each has its own result. Nothing of one rank alone.
std::optional<LinkRate> probe_link(Communicator* ranks);

}  // namespace lockstep
