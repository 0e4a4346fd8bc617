#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "tensor/cuda/device.h"

namespace lockstep {

namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

// Of cuda::kOutsideBytes, what a process holds from its first call on, and so when it asks what is free.
constexpr std::int64_t kContextBytes = std::int64_t{400} << 20;

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

// This process's group of a controller, as a path from the root of its hierarchy, and all groups that it is in: "",
// "/a", "/a/b". `controller`: of cgroups v1; empty: v2. In a container its own group is mounted as the root.
std::vector<std::string> groups_of(const std::string& controller) {
  std::ifstream in("/proc/self/cgroup");
  std::vector<std::string> groups{""};
  for (std::string line; std::getline(in, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::istringstream names(line.substr(first + 1, second - first - 1));
    bool is_it = controller.empty() && names.str().empty();
    for (std::string name; std::getline(names, name, ',');) is_it |= name == controller;
    if (!is_it) continue;
    const std::string path = line.substr(second + 1);
    for (std::size_t at = path.find('/', 1); path.size() > 1; at = path.find('/', at + 1)) {
      groups.push_back(path.substr(0, at));
      if (at == std::string::npos) break;
    }
  }
  return groups;
}

}  // namespace

std::int64_t available_memory(Device device) {
  if (device == Device::cuda)
    return cuda::gpu_count() > 0 ? cuda::free_bytes() + std::min(cuda::used_bytes(), kContextBytes)
                                 : kUnlimited;  // absence is said later
  std::int64_t least = free_on_the_machine();
  for (const std::string& group : groups_of("memory")) {
    const std::string v1 = "/sys/fs/cgroup/memory" + group + "/memory.";
    least = std::min(least,
                     free_in_group(v1 + "limit_in_bytes", v1 + "usage_in_bytes", v1 + "stat", "total_inactive_file"));
  }
  for (const std::string& group : groups_of("")) {
    const std::string v2 = "/sys/fs/cgroup" + group + "/memory.";
    least = std::min(least, free_in_group(v2 + "max", v2 + "current", v2 + "stat", "inactive_file"));
  }
  return least;
}

}  // namespace lockstep
