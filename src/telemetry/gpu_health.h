// A GPU's clock, temperature and what holds the clock back, from NVIDIA's management library (NVML).
//
// The library is opened by name when it is there; nothing of it is needed to build. Each question takes microseconds
// and touches no stream. Nothing when there is no such library, no such GPU, or the GPU does not tell. A GPU at its
// power limit is not called throttled: under full load that is where it belongs.
//
// Used by one thread at a time.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "telemetry/rank_now.h"

namespace lockstep {

// NVML's functions, as nvml.h declares them, each null where the library has none. A test puts its own in their place.
struct NvmlFunctions {
  using Device = void*;
  struct Memory {
    unsigned long long total, free, used;
  };
  int (*init)() = nullptr;                                         // nvmlInit_v2
  int (*handle_by_bus_id)(const char*, Device*) = nullptr;         // nvmlDeviceGetHandleByPciBusId_v2
  int (*throttle_reasons)(Device, unsigned long long*) = nullptr;  // nvmlDeviceGetCurrentClocksThrottleReasons
  int (*temperature)(Device, int sensor, unsigned*) = nullptr;     // nvmlDeviceGetTemperature
  int (*clock)(Device, int type, unsigned*) = nullptr;             // nvmlDeviceGetClockInfo
  int (*memory)(Device, Memory*) = nullptr;                        // nvmlDeviceGetMemoryInfo
};

// Of libnvidia-ml.so.1, or of another file that has these functions. It stays open.
std::optional<NvmlFunctions> open_nvml(const char* library = "libnvidia-ml.so.1");

class GpuHealth {
 public:
  // `bus_id` as CUDA has it, "0000:1B:00.0": NVML counts GPUs differently.
  GpuHealth(const NvmlFunctions& functions, const std::string& bus_id);

  // Now. `seconds` since it was last asked are added to throttled_seconds if the clock is held back now.
  std::optional<RankGpu> sample(double seconds);

 private:
  NvmlFunctions functions_;
  NvmlFunctions::Device device_ = nullptr;
  double throttled_seconds_ = 0;
};

}  // namespace lockstep
