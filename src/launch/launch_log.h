// What the leading agent writes of a run: decisions and what they cost in events.jsonl, and the state in launch.json.
//
// A fault is overcome when a step is completed in the epoch after it: the seconds from its discovery to then are its
// cost. Steps are known by metrics.jsonl, whose tail is read while that is awaited, and otherwise only when asked; the
// goodput is brought up to date from what the files have grown by (telemetry/goodput.h) with each launch.json. A
// disk that takes nothing is no reason to end a run: what cannot be written is left out.
//
// One thread.
#pragma once
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "launch/leader.h"
#include "telemetry/goodput.h"
#include "telemetry/launch_state.h"

namespace lockstep {

class LaunchLog {
 public:
  using Clock = std::chrono::steady_clock;
  // `copies`: of the state, in memory, are made where there is room.
  LaunchLog(std::filesystem::path folder, bool copies, std::function<void(const std::string& message)> tell)
      : folder_(std::move(folder)), copies_(copies), tell_(std::move(tell)), goodput_(folder_) {}

  std::int64_t last_step() const;  // that metrics.jsonl tells of; 0: none
  // The rank that the faults of this epoch are put down to, by what its ranks have written since it began
  // (telemetry/culprit.h).
  std::optional<int> blamed_rank() const;

  void epoch_began();
  void decided(const Leader::Hands::Decided& decided);
  void look();  // whether the last fault is overcome; several times per second
  // At most once per second, unless something changed. `heard`: seconds since each agent was heard.
  void write_state(const Leader& leader, int leading, const std::function<double(int agent)>& heard, bool ended);

 private:
  struct Open {  // a fault that no step was completed after yet
    Clock::time_point at;
    std::int64_t step;
    std::int64_t resumed_at;  // step, as far as is known
    Leader::Hands::Decided decided;
  };
  void log(LoggedEvent event) const;

  std::filesystem::path folder_;
  bool copies_;
  std::function<void(const std::string&)> tell_;
  GoodputReader goodput_;
  std::optional<Open> open_;
  std::optional<LaunchFault> fault_;
  double epoch_began_ = 0;  // seconds since 1970
  bool completed_ = false;  // a step of this epoch
  std::int64_t begun_at_ = 0;
  LaunchPhase phase_ = LaunchPhase::starting;
  double phase_since_ = 0;
  std::uint32_t written_epoch_ = 0;
  Clock::time_point written_{};
};

}  // namespace lockstep
