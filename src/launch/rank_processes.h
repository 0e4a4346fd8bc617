// The processes of one try of a run: one of lockstep whose ranks are threads, or an mpirun and the ranks it starts.
//
// They have a process group of their own, so that a Ctrl-C on the terminal reaches the agent alone, which asks them to
// end. When the agent dies they are asked to end too (SIGTERM: they save). Destroying it kills those that are left.
//
// Construction: EnvironmentError where the program cannot be started. One thread uses it.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class RankProcesses {
 public:
  // The first word is a program's path, or its name in PATH.
  explicit RankProcesses(const std::vector<std::string>& command);
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  // The exit code, or 128 + the signal, once they have ended; waits for that as long as it may.
  std::optional<int> wait(std::chrono::milliseconds at_most);
  void ask_to_end();
  // Kills them, and the processes of these numbers that run this program: mpirun's ranks are in groups of their own.
  void kill(const std::vector<pid_t>& ranks);

 private:
  pid_t pid_ = -1;
  int descriptor_ = -1;  // readable once the process has ended
  std::optional<int> code_;
};

}  // namespace lockstep
