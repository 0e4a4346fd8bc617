// A control group of its own, while it lives: processes in it have that much memory, or that share of a core.
//
// Both versions of the kernel's control groups. Not every user may make one: ask whether it is there.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace lockstep::tests {

class ControlGroup {
 public:
  static ControlGroup of_memory(std::int64_t bytes);
  static ControlGroup of_cores(double cores);
  ~ControlGroup();  // those that are still in it go back to where they were
  ControlGroup(const ControlGroup&) = delete;
  ControlGroup& operator=(const ControlGroup&) = delete;
  explicit operator bool() const { return there_; }

  void take(pid_t process);
  std::string processes_file() const { return (path_ / "cgroup.procs").string(); }  // who writes its own number enters

 private:
  struct Limit {
    const char* kind;
    const char* key_1;  // of version 1
    std::string value_1;
    const char* key_2;  // of version 2
    std::string value_2;
  };
  explicit ControlGroup(const Limit& limit);

  std::string kind_;
  std::filesystem::path path_;
  std::map<pid_t, std::filesystem::path> taken_from_;
  bool there_ = false;
};

}  // namespace lockstep::tests
