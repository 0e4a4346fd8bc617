#include "launch/remote_agents.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/error.h"

namespace lockstep {

namespace {
constexpr double kMostPause = 30, kSteady = 60, kFarewell = 10;  // seconds

// What a user can do about it.
std::string how_it_ended(const std::string& host, int code) {
  switch (code) {
    case static_cast<int>(ExitCode::usage):
      return fmt::format(
          "the agent of {0} refuses to start and is not started again: mend what it says, then start it "
          "on {0} by the same command with --host {0}",
          host);
    case 126:
    case 127:
      return fmt::format(
          "{} has no lockstep where this host has it (exit code {}): install it at the same path, or mend "
          "--remote",
          host, code);
    case 255:
      return fmt::format(
          "{} cannot be reached by --remote, or its connection was lost (exit code 255): see that the "
          "command works by hand, without a password",
          host);
    default:
      return fmt::format("the agent of {} has ended with code {}", host, code);
  }
}

std::chrono::steady_clock::duration as_duration(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}
}  // namespace

RemoteAgents::RemoteAgents(const std::vector<std::string>& hosts, int mine, Command command, Tell tell)
    : command_(std::move(command)), tell_(std::move(tell)) {
  for (int agent = 0; agent < static_cast<int>(hosts.size()); ++agent)
    if (agent != mine) remotes_[agent].host = hosts[static_cast<std::size_t>(agent)];
}

void RemoteAgents::look() {
  const auto now = Clock::now();
  for (auto& [agent, remote] : remotes_) {
    if (remote.process) {
      const std::optional<int> code = remote.process->look();
      if (!code) continue;
      remote.given_up = *code == static_cast<int>(ExitCode::usage);
      if (remote.told != *code)
        tell_(how_it_ended(remote.host, *code) + (remote.given_up ? "" : "; it is tried again until it is there"));
      remote.told = *code;
      if (now - remote.began > as_duration(kSteady)) remote.pause = 1;
      remote.next = now + as_duration(remote.pause);
      remote.pause = std::min(2 * remote.pause, kMostPause);
      remote.process.reset();
    }
    if (remote.given_up || now < remote.next) continue;
    try {
      remote.began = now;
      remote.process = std::make_unique<RankProcess>(ProcessCommand{.words = command_(agent)});
    } catch (const EnvironmentError& error) {
      if (remote.told != 127) tell_(fmt::format("{}: {}; mend --remote", remote.host, error.what()));
      remote.told = 127;
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
