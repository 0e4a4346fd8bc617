// The agents of other hosts, started from this one by ssh or another command.
//
// One that has ended is started again after a pause that grows, for as long as the run goes on: a host that was
// rebooted comes back by itself. One thread.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launch/rank_process.h"

namespace lockstep {

class RemoteAgents {
 public:
  using Command = std::function<std::vector<std::string>(int agent)>;
  using Tell = std::function<void(const std::string& message)>;
  // Of all hosts but `mine`.
  RemoteAgents(const std::vector<std::string>& hosts, int mine, Command command, Tell tell);

  void look();    // starts those that have ended, but for one that says it was started wrongly (exit code 2)
  void finish();  // waits for their end, some seconds at most

 private:
  using Clock = std::chrono::steady_clock;
  struct Remote {
    std::string host = {};
    bool given_up = false;
    int told = -1;  // the exit code that was told last
    std::unique_ptr<RankProcess> process = {};
    double pause = 1;  // seconds, before the next start
    Clock::time_point next = Clock::now();
    Clock::time_point began = {};
  };
  Command command_;
  Tell tell_;
  std::map<int, Remote> remotes_;
};

}  // namespace lockstep
