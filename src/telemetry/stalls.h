// Which ranks of a run are hung, by what they say of themselves (rank_now.h): a pure function.
//
// A rank is hung when nothing has moved on it for max(kLeast, kTimes × what it usually takes there) seconds: it came to
// no other action, and entered or left no call. What it says is judged, as of when it said it. Time that has passed
// since then says nothing about the rank: the disk may be slow, or another host's clock ahead. Silence is judged by who
// hears the rank (agent_pulse.h); who has nothing better gives `silent`, and `time`, the present in seconds since 1970.
//
//   where it is                 at least           without a usual time
//   action, evaluating          least (10 s)       unseen (120 s): the first step tunes, loads and captures
//   between_steps               unseen             unseen: a disk may hold rank 0 there
//   saving                      unseen             not judged: the first save of a large state takes what it takes
//   finishing, ended            not judged         run.deadline bounds what ranks wait for each other there
//
// A rank in a call waits for others, and is a victim whatever it takes: it is not named while any rank in no call may
// still come. When every rank that trains is in a call and all have waited longer than `unseen`, those that are behind
// are named: in an earlier step than others, or in an earlier call of the same group. Where none is behind, messages
// were lost and nobody is named; run.deadline ends that.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "telemetry/rank_now.h"

namespace lockstep {

struct StallRules {
  double least = 10;    // seconds
  double times = 5;     // of what is usual
  double unseen = 120;  // where nothing is known to be usual, or a disk is waited for; run.deadline if that is more
  std::optional<double> silent = {};  // age of what a rank has said that counts as hung; nothing: age is not judged
};

struct StalledRank {
  int rank = 0;
  std::string host = {};
  std::int64_t pid = 0;
  std::string what = {};             // "in forward block.3, micro-batch 1 of step 17"
  double seconds = 0;                // that nothing has moved
  std::optional<double> usual = {};  // that it takes there
  double limit = 0;                  // seconds that it was given
  bool silent = false;               // it has said nothing for `seconds`; `what` is where it was last
};

// The one that is most behind first; empty: nobody is hung. `ranks` are those of one epoch.
std::vector<StalledRank> find_stalled(std::span<const RankNow> ranks, double time, const StallRules& rules = {});

// "rank 3 (process 4711 on node-2) has been in forward block.3 of step 17 for 34.0 s, which usually takes 210 ms".
std::string to_text(const StalledRank& rank);

// "in all_reduce #41 of 'dp', in backward block.3, of step 17", "saving, in step 20".
std::string place_text(const RankNow& now);

}  // namespace lockstep
