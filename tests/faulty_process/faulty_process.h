// What tests/faulty_process/faulty_process.cpp does to the processes it is loaded into, and by what it is told.
#pragma once
#include <atomic>
#include <cstdint>

namespace lockstep::tests {

// A file of this, named by FAULTY_PROCESS in the environment and mapped by all processes of a host. All zero: nothing
// is wrong.
struct FaultyControls {
  std::atomic<std::int64_t> clock_offset_ns;  // of the calendar's clock; steady clocks stay as they are
  std::atomic<std::int32_t> write_error;      // errno of what writes under …/checkpoints/
  std::atomic<std::int32_t> any_error;        // errno of what opens anything there
};

// Signals that a process obeys, from SIGRTMIN on.
enum FaultySignal { kExitZero = 5, kExitFive, kThrow, kLeak };

}  // namespace lockstep::tests
