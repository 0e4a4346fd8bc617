#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "plan/plan.h"
#include "tensor/cuda/device.h"

namespace lockstep {

namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

std::int64_t number_in(const std::string& path) {
  std::ifstream in(path);
  std::int64_t value = 0;
  return in >> value ? value : -1;  // "max" and absence alike
}

std::int64_t free_on_the_machine() {
  std::ifstream in("/proc/meminfo");
  std::string key, unit;
  for (std::int64_t value = 0; in >> key >> value;) {
    std::getline(in, unit);
    if (key == "MemAvailable:") return value * 1024;
  }
  return kUnlimited;
}

// What a cgroup's limit leaves, at the given files; its page cache can be given back and is not counted as used.
std::int64_t free_in_group(const std::string& limit, const std::string& usage, const std::string& statistics,
                           const std::string& cache_key) {
  const std::int64_t most = number_in(limit), used = number_in(usage);
  if (most <= 0 || used < 0 || most > (std::int64_t{1} << 60)) return kUnlimited;
  std::ifstream in(statistics);
  std::int64_t cache = 0, value = 0;
  for (std::string key; in >> key >> value;)
    if (key == cache_key) cache = value;
  return std::max<std::int64_t>(0, most - used + cache);
}

}  // namespace

std::int64_t available_memory(Device device) {
  if (device == Device::cuda) return cuda::gpu_count() > 0 ? cuda::free_bytes() : kUnlimited;  // absence is said later
  const std::string v1 = "/sys/fs/cgroup/memory/memory.", v2 = "/sys/fs/cgroup/memory.";
  return std::min({free_on_the_machine(),
                   free_in_group(v1 + "limit_in_bytes", v1 + "usage_in_bytes", v1 + "stat", "total_inactive_file"),
                   free_in_group(v2 + "max", v2 + "current", v2 + "stat", "inactive_file")});
}

}  // namespace lockstep
