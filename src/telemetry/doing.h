// What one rank is doing at the moment, stored by its own thread and read by another.
//
// A store costs some tens of nanoseconds, most of them for the clock: no lock, no allocation, no system call. The
// reader sees all fields of one store or tries again: a sequence number is odd while fields are being stored, and they
// are taken only if it was even and the same before and after (a seqlock). The fields are atomics stored with release
// and loaded with acquire, in place of fences, which the thread sanitizer does not know; a processor of the x86 kind
// runs both as plain moves.
//
// Group and operation are pointers to text that outlives the Doing: literals, or interned.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include "telemetry/recent_durations.h"

namespace lockstep {

enum class DoingKind : std::uint8_t {
  between_steps,
  action,
  call,
  saving,
  evaluating,  // one batch of it
  ended,
  finishing,  // the last state is saved, and the run ends
};
inline constexpr int kDoingKinds = 7;

constexpr std::string_view name_of(DoingKind kind) {
  constexpr std::array<std::string_view, kDoingKinds> kNames = {"between_steps", "action", "call",     "saving",
                                                                "evaluating",    "ended",  "finishing"};
  return kNames[static_cast<std::size_t>(kind)];
}

inline std::int64_t steady_nanoseconds() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// What durations are kept of (recent_durations.h): each action by its index, and what is none.
inline constexpr int kStepBegun = kDoingKinds, kFirstActionPlace = kDoingKinds + 1;
constexpr int place_of(DoingKind kind) { return static_cast<int>(kind); }

struct DoingState {
  DoingKind kind = DoingKind::between_steps;
  int action = -1;                            // index in the rank's list of actions; -1: in none
  std::int64_t step = 0;                      // of training
  std::int64_t call = -1;                     // number in its group; -1: in no call
  const char* group = nullptr;                // of the call
  const char* op = nullptr;                   // of the call
  int place = 0;                              // where its durations are kept; of a call, where the rank returns to
  std::int64_t since = steady_nanoseconds();  // when the rank came there
};

class alignas(64) Doing {
 public:
  Doing() { publish(); }
  Doing(const Doing&) = delete;
  Doing& operator=(const Doing&) = delete;

  // By the rank's own thread:
  void begin_step(std::int64_t step) { come_to({.step = step, .place = kStepBegun}); }  // in no action of it yet
  void begin_action(int index) {
    come_to({.kind = DoingKind::action, .action = index, .step = own_.step, .place = kFirstActionPlace + index});
  }
  // What is neither an action nor a call. To enter the same again is progress.
  void enter(DoingKind kind) { come_to({.kind = kind, .step = own_.step, .place = place_of(kind)}); }
  void begin_call(const char* group, const char* op, std::int64_t number) {
    store({.kind = DoingKind::call,
           .action = own_.action,
           .step = own_.step,
           .call = number,
           .group = group,
           .op = op,
           .place = own_.place});
  }
  // How long the rank is where, from now on; it outlives the stores that follow. Null: nowhere.
  void keep_durations(RecentDurations* durations) { durations_ = durations; }
  // As it was, its time included: what InCall returns to.
  void store(const DoingState& state) {
    own_ = state;
    publish();
  }
  const DoingState& own() const { return own_; }

  // By any thread:
  // Nothing when the rank's thread stored all the while, or was suspended within a store.
  std::optional<DoingState> load() const;
  // Grows with each store: a rank moves while it does.
  std::uint64_t stores() const { return sequence_.load(std::memory_order_acquire) / 2; }

 private:
  void come_to(const DoingState& state) {
    if (durations_) durations_->note(own_.place, state.since - own_.since);
    store(state);
  }
  void publish();

  std::atomic<std::uint64_t> sequence_{0};
  std::atomic<std::int64_t> step_{0}, call_{-1}, since_{0};
  std::atomic<const char*> group_{nullptr}, op_{nullptr};
  std::atomic<int> action_{-1}, place_{0};
  std::atomic<DoingKind> kind_{DoingKind::between_steps};
  DoingState own_;                        // of the rank's thread alone
  RecentDurations* durations_ = nullptr;  // likewise
};

// While it lives the rank is in a call; then it is again where it was, since the time it came there. Calls may nest.
// Without a Doing it does nothing.
class InCall {
 public:
  InCall(Doing* doing, const char* group, const char* op, std::int64_t number) : doing_(doing) {
    if (!doing_) return;
    before_ = doing_->own();
    doing_->begin_call(group, op, number);
  }
  ~InCall() {
    if (doing_) doing_->store(before_);
  }
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;

 private:
  Doing* doing_;
  DoingState before_{.since = 0};
};

inline void Doing::publish() {
  const std::uint64_t sequence = sequence_.load(std::memory_order_relaxed);
  sequence_.store(sequence + 1, std::memory_order_relaxed);
  // Release: whoever sees one of these sees the odd number too.
  step_.store(own_.step, std::memory_order_release);
  call_.store(own_.call, std::memory_order_release);
  since_.store(own_.since, std::memory_order_release);
  group_.store(own_.group, std::memory_order_release);
  op_.store(own_.op, std::memory_order_release);
  action_.store(own_.action, std::memory_order_release);
  place_.store(own_.place, std::memory_order_release);
  kind_.store(own_.kind, std::memory_order_release);
  sequence_.store(sequence + 2, std::memory_order_release);
}

inline std::optional<DoingState> Doing::load() const {
  constexpr int kTries = 1000;
  for (int i = 0; i < kTries; ++i) {
    const std::uint64_t before = sequence_.load(std::memory_order_acquire);
    const DoingState state{.kind = kind_.load(std::memory_order_acquire),
                           .action = action_.load(std::memory_order_acquire),
                           .step = step_.load(std::memory_order_acquire),
                           .call = call_.load(std::memory_order_acquire),
                           .group = group_.load(std::memory_order_acquire),
                           .op = op_.load(std::memory_order_acquire),
                           .place = place_.load(std::memory_order_acquire),
                           .since = since_.load(std::memory_order_acquire)};
    if (before % 2 == 0 && sequence_.load(std::memory_order_relaxed) == before) return state;
  }
  return std::nullopt;
}

}  // namespace lockstep
