// Strangers at a port of the control plane: bytes that mean nothing, halves of frames, connections that say nothing.
#pragma once
#include <cstdint>
#include <string>

namespace lockstep::tests {

// For that many seconds; returns how many connections were made.
int disturb(const std::string& address, int port, double seconds, std::uint64_t seed);

}  // namespace lockstep::tests
