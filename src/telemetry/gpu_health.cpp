#include "telemetry/gpu_health.h"

#include <dlfcn.h>

#include <utility>

namespace lockstep {

namespace {

constexpr int kSmClock = 1, kGpuSensor = 0;  // NVML_CLOCK_SM, NVML_TEMPERATURE_GPU

// nvmlClocksThrottleReason…: those that slow a GPU down which could run faster. Idle, clocks that somebody has set and
// the power cap are none.
constexpr std::pair<unsigned long long, const char*> kSlowdowns[] = {
    {0x8, "hardware slowdown"}, {0x20, "too hot (software)"}, {0x40, "too hot (hardware)"}, {0x80, "power brake"}};

template <class Function>
void find_in(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

std::optional<NvmlFunctions> open_nvml(const char* library) {
  void* const opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (!opened) return std::nullopt;
  NvmlFunctions found;
  find_in(opened, "nvmlInit_v2", found.init);
  find_in(opened, "nvmlDeviceGetHandleByPciBusId_v2", found.handle_by_bus_id);
  find_in(opened, "nvmlDeviceGetCurrentClocksThrottleReasons", found.throttle_reasons);
  find_in(opened, "nvmlDeviceGetTemperature", found.temperature);
  find_in(opened, "nvmlDeviceGetClockInfo", found.clock);
  find_in(opened, "nvmlDeviceGetMemoryInfo", found.memory);
  return found;
}

GpuHealth::GpuHealth(const NvmlFunctions& functions, const std::string& bus_id) : functions_(functions) {
  if (!functions_.init || !functions_.handle_by_bus_id || functions_.init() != 0 ||
      functions_.handle_by_bus_id(bus_id.c_str(), &device_) != 0)
    device_ = nullptr;
}

std::optional<RankGpu> GpuHealth::sample(double seconds) {
  unsigned long long reasons = 0;
  if (!device_ || !functions_.throttle_reasons || functions_.throttle_reasons(device_, &reasons) != 0)
    return std::nullopt;
  RankGpu gpu;
  for (const auto& [bit, name] : kSlowdowns)
    if (reasons & bit) gpu.throttled.emplace_back(name);
  if (!gpu.throttled.empty()) throttled_seconds_ += seconds;
  gpu.throttled_seconds = throttled_seconds_;
  unsigned value = 0;
  if (functions_.clock && functions_.clock(device_, kSmClock, &value) == 0) gpu.sm_mhz = value;
  if (functions_.temperature && functions_.temperature(device_, kGpuSensor, &value) == 0) gpu.temperature = value;
  NvmlFunctions::Memory memory{};
  if (functions_.memory && functions_.memory(device_, &memory) == 0) {
    gpu.memory_used = static_cast<std::int64_t>(memory.used);
    gpu.memory_total = static_cast<std::int64_t>(memory.total);
  }
  return gpu;
}

}  // namespace lockstep
