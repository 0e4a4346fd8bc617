#include "telemetry/host_health.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace lockstep {

namespace {

constexpr const char* kStatus = "/proc/self/status";

// Of a line "VmRSS:    1234 kB" of a file; nothing: there is none.
std::optional<std::int64_t> kilobytes_in(const char* file, const std::string& name) {
  std::ifstream in(file);
  for (std::string key, rest; in >> key; std::getline(in, rest)) {
    std::int64_t value = 0;
    if (key == name + ":" && in >> value) return value << 10;
  }
  return std::nullopt;
}

std::optional<std::int64_t> limit_of_control_group() {
  std::ifstream own("/proc/self/cgroup");
  std::string line;
  while (std::getline(own, line))
    if (line.starts_with("0::")) break;
  if (!line.starts_with("0::")) return std::nullopt;
  std::ifstream in("/sys/fs/cgroup" + line.substr(3) + "/memory.max");
  std::int64_t bytes = 0;
  return in >> bytes ? std::optional(bytes) : std::nullopt;  // "max" is none
}

std::optional<std::int64_t> soft_limit(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::nullopt;
  return static_cast<std::int64_t>(limit.rlim_cur);
}

}  // namespace

std::int64_t this_thread_id() { return ::gettid(); }

std::optional<RankCpu> cpu_of_thread(std::int64_t thread) {
  std::ifstream in(fmt::format("/proc/self/task/{}/schedstat", thread));
  std::int64_t ran = 0, waited = 0;
  if (!(in >> ran >> waited)) return std::nullopt;
  return RankCpu{.ran = static_cast<double>(ran) * 1e-9, .waited = static_cast<double>(waited) * 1e-9};
}

std::optional<std::int64_t> held_by_process() {
  const auto own = kilobytes_in(kStatus, "RssAnon");
  if (!own) return std::nullopt;
  return *own + kilobytes_in(kStatus, "RssShmem").value_or(0) + kilobytes_in(kStatus, "VmSwap").value_or(0);
}

std::int64_t MemorySwing::bytes() const {
  std::int64_t risen = 0, fallen = 0;
  for (std::size_t i = 1; i < looks_.size(); ++i) {
    const std::int64_t more = looks_[i] - looks_[i - 1];
    (more > 0 ? risen : fallen) += more > 0 ? more : -more;
  }
  return std::min(risen, fallen);
}

std::optional<RankMemory> memory_of_process() {
  std::optional<RankMemory> tightest;
  const auto consider = [&](const char* name, const std::optional<std::int64_t>& limit) {
    const std::optional<std::int64_t> used = kilobytes_in(kStatus, name);
    if (!used || !limit || *limit <= 0) return;
    const RankMemory memory{.used = *used, .limit = *limit};
    if (!tightest || memory.share() > tightest->share()) tightest = memory;
  };
  consider("VmHWM", kilobytes_in("/proc/meminfo", "MemTotal"));
  consider("VmHWM", limit_of_control_group());
  consider("VmData", soft_limit(RLIMIT_DATA));
  consider("VmPeak", soft_limit(RLIMIT_AS));
  return tightest;
}

}  // namespace lockstep
