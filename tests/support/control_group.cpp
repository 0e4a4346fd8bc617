#include "support/control_group.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>
#include <vector>

namespace lockstep::tests {

namespace fs = std::filesystem;

namespace {

const fs::path kRoot = "/sys/fs/cgroup";

// The folder of a process's group of that kind: of version 1 where the kind is bound to it, else of version 2.
fs::path group_of(const std::string& process, const std::string& kind) {
  std::ifstream in("/proc/" + process + "/cgroup");
  fs::path second = kRoot;
  for (std::string line; std::getline(in, line);) {
    const std::size_t kinds = line.find(':') + 1, name = line.find(':', kinds) + 1;
    if (("," + line.substr(kinds, name - 1 - kinds) + ",").find("," + kind + ",") != std::string::npos)
      return kRoot / kind / fs::path(line.substr(name)).relative_path();
    if (kinds == name - 1) second = kRoot / fs::path(line.substr(name)).relative_path();
  }
  return second;
}

bool write(const fs::path& file, const std::string& text) {
  std::ofstream out(file);
  out << text << std::flush;
  return out.good();
}

}  // namespace

ControlGroup ControlGroup::of_memory(std::int64_t bytes) {
  const std::string text = std::to_string(bytes);
  return ControlGroup({"memory", "memory.limit_in_bytes", text, "memory.max", text});
}

ControlGroup ControlGroup::of_cores(double cores) {
  constexpr double kPeriod = 100'000;  // us
  const auto quota = static_cast<std::int64_t>(cores * kPeriod);
  return ControlGroup(
      {"cpu", "cpu.cfs_quota_us", std::to_string(quota), "cpu.max", fmt::format("{} {:.0f}", quota, kPeriod)});
}

ControlGroup::ControlGroup(const Limit& limit) : kind_(limit.kind) {
  static std::atomic<int> made = 0;
  const std::string name = fmt::format("lockstep-test-{}-{}", ::getpid(), made++);
  const fs::path own = group_of("self", kind_);
  // A group of version 2 that has processes may not share out its memory, unless it is the first of all.
  for (const fs::path& parent : {own, kRoot}) {
    std::error_code error;
    if (fs::exists(parent / "cgroup.subtree_control", error)) write(parent / "cgroup.subtree_control", "+" + kind_);
    path_ = parent / name;
    if (!fs::create_directory(path_, error)) continue;
    const bool second = fs::exists(path_ / limit.key_2, error);
    there_ = write(path_ / (second ? limit.key_2 : limit.key_1), second ? limit.value_2 : limit.value_1);
    if (there_) return;
    ::rmdir(path_.c_str());
  }
}

ControlGroup::~ControlGroup() {
  for (int i = 0; there_ && i < 100; ++i) {
    std::ifstream in(path_ / "cgroup.procs");
    for (pid_t process = 0; in >> process;) {
      const auto from = taken_from_.find(process);
      write((from == taken_from_.end() ? path_.parent_path() : from->second) / "cgroup.procs", std::to_string(process));
    }
    if (::rmdir(path_.c_str()) == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // those that have ended are still leaving it
  }
}

void ControlGroup::take(pid_t process) {
  taken_from_[process] = group_of(std::to_string(process), kind_);
  write(path_ / "cgroup.procs", std::to_string(process));
}

}  // namespace lockstep::tests
