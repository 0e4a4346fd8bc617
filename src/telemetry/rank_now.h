// RUN/ranks/rank-00007.now: what one rank was doing when the file was written, as one JSON object.
//
// {"rank", "pid", "host", "step", "doing", "action", "group", "op", "call", "seconds", "time", "quiet", "usual"}:
// `doing` is a name of DoingKind, `seconds` how long the rank had been there, `time` seconds since 1970, `quiet` for
// how long nothing had moved on it: no action, no call begun or ended; `usual` the median of how long it has been there
// before, null where it has not been there three times. The action, and the group, operation and number of a call, are
// null where the rank is in none. After "ended" they say where it was last. The file is replaced about once a second
// (heartbeat.h): one whose time is long past is of a process that is gone, or held.
//
// Where the system tells, also: "cpu" {"ran_s", "waited_s"}, "memory" {"used", "limit", "held",
// "swing"} and, of a rank with a GPU,
// "gpu"
// {"sm_mhz", "temperature", "throttled" [reasons], "throttled_seconds", "memory_used", "memory_total"}.
//
// Reading: the file may come from anywhere. Nothing when there is none; UserError (bad_input_file) for one that is
// something else. Other fields are ignored, and so is a cpu, memory or gpu that is no such object.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "telemetry/doing.h"

namespace lockstep {

// Of the rank's thread, since it began to train, in seconds: on a core, and ready to run while others had the cores.
struct RankCpu {
  double ran = 0, waited = 0;
  double waited_share() const { return ran + waited > 0 ? waited / (ran + waited) : 0; }
};

// Of the rank's process, in bytes: what it used at most of the tightest limit there is (host, control group, ulimit);
// what it holds now of its own, without files that are mapped; and what it has both taken and given back in the last
// minute: the smaller of the sums of all rises and of all falls of what it held, from one look a second to the next.
struct RankMemory {
  std::int64_t used = 0, limit = 0;
  std::int64_t held = 0, swing = 0;
  double share() const { return limit > 0 ? static_cast<double>(used) / static_cast<double>(limit) : 0; }
};

// Of the rank's GPU (gpu_health.h).
struct RankGpu {
  double sm_mhz = 0, temperature = 0;  // degrees Celsius
  std::vector<std::string> throttled;  // why its clock is held back at the moment
  double throttled_seconds = 0;        // since the rank began to train
  std::int64_t memory_used = 0, memory_total = 0;
};

struct RankNow {
  int rank = 0;
  std::int64_t pid = 0;
  std::string host = {};
  std::int64_t step = 0;
  DoingKind doing = DoingKind::between_steps;
  std::string action = {};          // its name; empty: in none
  std::string group = {}, op = {};  // of the call; empty: in none
  std::int64_t call = -1;
  double seconds = 0;
  double time = 0;
  double quiet = 0;                  // at most `seconds`; of a file that does not say: `seconds`
  std::optional<double> usual = {};  // of the action, where the rank is in a call
  std::optional<RankCpu> cpu = {};
  std::optional<RankMemory> memory = {};
  std::optional<RankGpu> gpu = {};
};

inline constexpr int kMostRanks = 1 << 20;
// Bytes of a file, and of a text in it: longer ones are cut when written, refused when read.
inline constexpr std::size_t kMostRankNowBytes = 64 << 10, kMostRankTextBytes = 1 << 10;

// One line. Bytes that are not UTF-8 are replaced.
std::string to_json_line(const RankNow& now);

std::optional<RankNow> read_rank_now(const std::filesystem::path& file);
// The same of a text in memory; `where` names it in messages.
RankNow parse_rank_now(std::string_view text, const std::string& where);

}  // namespace lockstep
