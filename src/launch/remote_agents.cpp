#include "launch/remote_agents.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/error.h"

namespace lockstep {

namespace {
constexpr double kMostPause = 30, kSteady = 60, kFarewell = 10;  // seconds

std::chrono::steady_clock::duration as_duration(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}
}  // namespace

RemoteAgents::RemoteAgents(int count, int mine, Command command, Tell tell)
    : command_(std::move(command)), tell_(std::move(tell)) {
  for (int agent = 0; agent < count; ++agent)
    if (agent != mine) remotes_[agent];
}

void RemoteAgents::look() {
  const auto now = Clock::now();
  for (auto& [agent, remote] : remotes_) {
    if (remote.process) {
      const std::optional<int> code = remote.process->look();
      if (!code) continue;
      tell_(fmt::format("the agent of host {} has ended with code {}; it is started again in {:.0f} s", agent, *code,
                        remote.pause));
      if (now - remote.began > as_duration(kSteady)) remote.pause = 1;
      remote.next = now + as_duration(remote.pause);
      remote.pause = std::min(2 * remote.pause, kMostPause);
      remote.process.reset();
    }
    if (now < remote.next) continue;
    try {
      remote.began = now;
      remote.process = std::make_unique<RankProcess>(ProcessCommand{.words = command_(agent)});
    } catch (const EnvironmentError& error) {
      tell_(fmt::format("the agent of host {}: {}", agent, error.what()));
      remote.next = now + as_duration(remote.pause);
      remote.pause = std::min(2 * remote.pause, kMostPause);
    }
  }
}

void RemoteAgents::finish() {
  const auto until = Clock::now() + as_duration(kFarewell);
  for (auto& [agent, remote] : remotes_)
    while (remote.process && !remote.process->look() && Clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

}  // namespace lockstep
