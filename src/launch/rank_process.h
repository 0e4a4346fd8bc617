// One process that an agent has started: a rank, all ranks as threads, or an mpirun and the ranks it starts.
//
// It has a process group of its own, so that a Ctrl-C on the terminal reaches the agent alone, which asks it to end.
// When the agent dies it is asked to end too (SIGTERM: ranks save). Destroying it kills what is left.
//
// It is given one end of a pipe, whose number it finds in LOCKSTEP_AGENT_FD, and writes a byte there about once per
// second (telemetry/heartbeat.h): silence there says that the process is held, whatever the disk is doing.
//
// Construction: EnvironmentError where the program cannot be started. One thread uses it.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct ProcessCommand {
  std::vector<std::string> words;                                   // the first is a path, or a name in PATH
  std::vector<std::pair<std::string, std::string>> variables = {};  // beside the agent's own
};

class RankProcess {
 public:
  using Clock = std::chrono::steady_clock;

  explicit RankProcess(const ProcessCommand& command);
  ~RankProcess();
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  pid_t pid() const { return pid_; }
  int descriptor() const { return descriptor_; }  // readable once it has ended; -1: the system has none

  // The exit code, or 128 + the signal, once it has ended.
  const std::optional<int>& look();
  // Reads what has come through the pipe. Since when nothing has; nothing: it has never been heard.
  std::optional<Clock::time_point> last_heard();
  void ask_to_end();
  void kill();  // its group, and waits for its end

 private:
  pid_t pid_ = -1;
  int descriptor_ = -1;
  int heartbeat_ = -1;  // the pipe's end that is read
  std::optional<int> code_;
  std::optional<Clock::time_point> heard_;
};

// Kills the process if it runs this very program: mpirun's ranks are in groups of their own.
void kill_if_ours(pid_t pid);

}  // namespace lockstep
