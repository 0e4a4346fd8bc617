// How much of a run's time went into steps that count, and where the rest went.
//
// The whole is the time since the run began, from when its first ranks were set up; of a run that is under way to its
// last completed step, or to now while it is not training. Its parts add up to it:
//
//   steps        that are in metrics.jsonl and stay: the goodput is their share of the whole
//   saves        for which ranks were held; a save in the background holds them for its snapshot alone
//   evaluations
//   lost         steps that a fault has undone, from the last one that stays to the last one that was lost
//   set_up       of a try that nobody had to restart: plan, load, initialize, connect
//   recovery     from the last completed step before a fault, or before the run grew, to when ranks train again
//   waiting      likewise, while `lockstep launch` waited for hosts
//   stopped      nobody trained: from an ending to a resumption by a person
//   other        what is left: comparing clocks, writing the timeline, the loop itself
//
// The time of steps is the sum of what metrics.jsonl says of them, all else is by events.jsonl (`start` with `lost`,
// `save`, `evaluation`, `decision`, `end`). Where a clock has jumped back and the parts are more than the whole, the
// whole is their sum. Lines that are missing make the share smaller, never larger.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "telemetry/followed_lines.h"
#include "telemetry/run_event.h"

namespace lockstep {

struct Goodput {
  double whole = 0;  // seconds, as all parts
  double steps = 0, saves = 0, evaluations = 0, lost = 0, set_up = 0, recovery = 0, waiting = 0, stopped = 0, other = 0;
  std::int64_t lost_steps = 0;
  std::int64_t restarts = 0;  // tries that `lockstep launch` began after the first

  double share() const { return whole > 0 ? steps / whole : 0; }
  // By name, in the order above.
  std::array<std::pair<std::string_view, double>, 9> parts() const {
    return {{{"steps", steps},
             {"saves", saves},
             {"evaluations", evaluations},
             {"lost", lost},
             {"set_up", set_up},
             {"recovery", recovery},
             {"waiting", waiting},
             {"stopped", stopped},
             {"other", other}}};
  }
};

// Lines as they come, in the order of their files. The two files are independent of each other.
class GoodputAccount {
 public:
  void forget_steps();
  void add_step(double time, double seconds);  // when it ended, and took
  void forget_events() { events_ = {}; }
  void add_event(const RunEvent& event);

  // `now`: seconds since 1970; `running`: some process trains, or restarts what does. Nothing before the first step or
  // start.
  std::optional<Goodput> value(double now, bool running) const;

 private:
  friend class GoodputReader;
  struct Steps {
    double first = kUnknown, last = kUnknown, seconds = 0;
  };
  struct Events {
    double begun = kUnknown, started = kUnknown;  // set-up of the first try; training of the last
    double ended = kUnknown;                      // in order, since then
    double held_until = kUnknown;                 // by the last save or evaluation
    double waits_since = kUnknown;                // a decision since the last start
    double told = kUnknown;                       // the last fault or decision since then
    bool restarts = false;                        // likewise: a decision to begin anew
    Goodput sums;
  };
  void start(const RunEvent& event);

  Events events_;
  Steps steps_;
};

// The same of a run folder, read as far as its files have grown; for who needs nothing else of them.
class GoodputReader {
 public:
  explicit GoodputReader(const std::filesystem::path& run)
      : metrics_(run / "metrics.jsonl"), events_(run / "events.jsonl") {}
  std::optional<Goodput> update(double now, bool running);

 private:
  FollowedLines metrics_, events_;
  GoodputAccount account_;
  std::vector<GoodputAccount::Steps> at_marks_;  // of metrics_
};

}  // namespace lockstep
