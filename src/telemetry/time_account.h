// Where a rank's time goes: at every moment its clock runs on exactly one use, so the times of a step add up to it.
//
// Where work is given to a stream that runs ahead of the host, the account marks the points in the stream at which one
// use follows another, and who reads these marks has the times (train/stream_times.h).
//
// One thread uses an account, its rank's.
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <utility>

namespace lockstep {

enum class TimeUse : std::uint8_t {
  compute,  // forward and backward, and what is sent beside them
  wait_dp,  // held by a message that had not come, along this axis of the mesh
  wait_pp,
  wait_cp,
  wait_tp,
  optimizer,  // the norm, updates, publishing
  data,       // reading the next batch
  save,       // held by a checkpoint
  evaluate,
  other,  // the loop itself
};
inline constexpr int kTimeUses = 10;
inline constexpr std::array<std::string_view, kTimeUses> kTimeUseNames = {
    "compute", "wait_dp", "wait_pp", "wait_cp", "wait_tp", "optimizer", "data", "save", "evaluate", "other"};
constexpr std::string_view name_of(TimeUse use) { return kTimeUseNames[static_cast<std::size_t>(use)]; }
constexpr bool is_wait(TimeUse use) { return use >= TimeUse::wait_dp && use <= TimeUse::wait_tp; }

// Seconds of each use.
struct TimesByUse {
  std::array<double, kTimeUses> seconds{};

  double& operator[](TimeUse use) { return seconds[static_cast<std::size_t>(use)]; }
  double operator[](TimeUse use) const { return seconds[static_cast<std::size_t>(use)]; }
  double total() const;
  double waited() const;
  // What the rank itself took for the step, whoever else was waited for: the slowest rank has most of it.
  double busy() const { return total() - waited() - (*this)[TimeUse::save] - (*this)[TimeUse::evaluate]; }
};

// Told in the place of a clock: work of this use follows in a stream.
class UseMarker {
 public:
  virtual ~UseMarker() = default;
  virtual void mark(TimeUse use) = 0;
};

class TimeAccount {
 public:
  TimeAccount() = default;
  explicit TimeAccount(UseMarker* marker) : marker_(marker) {}  // it outlives this; none: the host's clock

  // The clock runs on this use from now on; what it ran on before.
  TimeUse enter(TimeUse use) {
    if (use == current_ || paused_) return use;
    if (marker_) {
      marker_->mark(use);
      return std::exchange(current_, use);
    }
    const Clock::time_point now = Clock::now();
    spent_[static_cast<std::size_t>(current_)] += now - since_;
    since_ = now;
    return std::exchange(current_, use);
  }
  // Since it was made, or last asked. Of an account that marks, nothing.
  TimesByUse take();
  // While it is paused, all time is of the use it was at, and nothing asks the clock: what accounting costs is measured
  // by that.
  void pause(bool paused) { paused_ = paused; }
  bool paused() const { return paused_; }

 private:
  using Clock = std::chrono::steady_clock;
  std::array<Clock::duration, kTimeUses> spent_{};
  UseMarker* marker_ = nullptr;
  TimeUse current_ = TimeUse::other;
  bool paused_ = false;
  Clock::time_point since_ = Clock::now();
};

// The time until the end of a scope is of this use. No account: nothing is measured.
class Spending {
 public:
  Spending(TimeAccount* account, TimeUse use) : account_(account), before_(account ? account->enter(use) : use) {}
  ~Spending() {
    if (account_) account_->enter(before_);
  }
  Spending(const Spending&) = delete;
  Spending& operator=(const Spending&) = delete;

 private:
  TimeAccount* account_;
  TimeUse before_;
};

}  // namespace lockstep
