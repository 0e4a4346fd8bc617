#include "launch/host_ranks.h"

#include <fmt/format.h>

#include <algorithm>

#include "launch/clock.h"
#include "telemetry/process_state.h"

namespace lockstep {

using launch::seconds_since;

namespace {

constexpr double kLongPause = 1;  // between two looks: this process was held

}  // namespace

void HostRanks::start(const EpochOrder& order, const Command& command) {
  if (order.joins && order.epoch < epoch_) return;  // of one that is over
  if (order.joins && order.epoch == epoch_) {       // else nothing of it runs here: this host has come back
    for (const EpochOrder::Place& place : order.places) {
      kill({place.rank});
      std::erase_if(processes_, [&](const Running& one) { return one.rank == place.rank; });
    }
  } else {
    kill();
    processes_.clear();
    epoch_ = order.epoch;
    looked_ = Clock::now();
    excused_ = 0;
  }
  for (const EpochOrder::Place& place : order.places)
    processes_.push_back({.rank = place.rank, .process = std::make_unique<RankProcess>(command(order, place))});
}

bool HostRanks::running() const {
  return std::ranges::any_of(processes_, [](const Running& one) { return !one.process->look(); });
}

std::string HostRanks::find_hang(Running& running, double excused) {
  const pid_t pid = running.process->pid();
  const auto heard = running.process->last_heard();
  if (process_state(pid) != ProcessState::stopped) running.ran = Clock::now();
  if (heard) running.ran = std::max(running.ran, *heard);  // stopped now and then, it is slow
  if (const double stopped = seconds_since(running.ran) - excused; stopped > kStopped)
    return fmt::format("(process {}) has been stopped for {:.0f} s", pid, stopped);
  if (!heard) return "";
  if (const double silent = seconds_since(*heard) - excused; silent > kSilent)
    return fmt::format("(process {}) has not been heard from for {:.0f} s", pid, silent);
  return "";
}

std::vector<RankEnd> HostRanks::look() {
  const double pause = seconds_since(looked_);
  looked_ = Clock::now();
  excused_ = pause > kLongPause ? excused_ + pause : std::max(0.0, excused_ - pause);
  std::vector<RankEnd> ends;
  for (Running& one : processes_) {
    if (one.told_end) continue;
    if (const auto& code = one.process->look()) {
      one.told_end = true;
      ends.push_back({.rank = one.rank, .code = *code, .killed = one.killed});
    } else if (!one.told_hang) {
      if (std::string found = find_hang(one, excused_); !found.empty()) {
        one.told_hang = true;
        ends.push_back({.rank = one.rank, .code = 0, .found = std::move(found)});
      }
    }
  }
  return ends;
}

void HostRanks::ask_to_end() {
  for (Running& one : processes_) one.process->ask_to_end();
}

void HostRanks::kill(const std::set<int>& ranks) {
  for (Running& one : processes_) {
    if (one.process->look() || (!ranks.empty() && !ranks.contains(one.rank))) continue;
    one.killed = true;
    one.process->kill();
  }
}

void HostRanks::add_descriptors(std::vector<pollfd>& polled) const {
  for (const Running& one : processes_)
    if (!one.told_end && one.process->descriptor() >= 0)
      polled.push_back({.fd = one.process->descriptor(), .events = POLLIN, .revents = 0});
}

}  // namespace lockstep
