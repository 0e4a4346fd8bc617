// Keeps a run going on this host: starts its ranks, watches them, and after a fault starts them again.
//
// A death is noticed at once, by the system. A rank whose process is stopped for kStopped seconds, or that has not
// written its file of what it is doing (telemetry/rank_now.h) for kSilent, is taken for hung: all ranks are killed and
// start again. Ranks that wait for each other in vain end by themselves, by run.deadline. What follows an ending is
// decided by restart_policy.h. A try begins when nobody holds the run folder's lock any more, so that no two write
// there.
//
// Every restart is a line of events.jsonl: what the fault was, the step after which it came, and the seconds from its
// discovery to the next completed step. The ranks' own lines are theirs.
//
// When `stop` is set the ranks are asked to end, once, and the agent ends with them.
#pragma once
#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "launch/restart_policy.h"

namespace lockstep {

struct AgentOptions {
  std::filesystem::path folder;                                   // the run's
  std::function<std::vector<std::string>(int restarts)> command;  // of a try: the first has had 0 restarts
  int ranks = 1;
  int most_restarts = 10;
  const std::atomic<bool>& stop;
  std::function<void(const std::string& message)> tell;
};

inline constexpr double kStopped = 5, kSilent = 30;

// The exit code. EnvironmentError where the ranks cannot be started.
int keep_running(const AgentOptions& options);

}  // namespace lockstep
