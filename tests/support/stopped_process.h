// A process that is stopped while this lives. It does not know.
#pragma once
#include <fmt/format.h>
#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "support/run_results.h"

namespace lockstep::tests {

class StoppedProcess {
 public:
  explicit StoppedProcess(pid_t process) : process_(process) {
    ::kill(process, SIGSTOP);
    const std::string file = fmt::format("/proc/{}/stat", process);
    for (int i = 0; i < 1000 && text_of(file).find(") T ") == std::string::npos; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ~StoppedProcess() { ::kill(process_, SIGCONT); }
  StoppedProcess(const StoppedProcess&) = delete;
  StoppedProcess& operator=(const StoppedProcess&) = delete;

 private:
  pid_t process_;
};

}  // namespace lockstep::tests
