// RUN/launch.json: what the agents of `lockstep launch` know of a run as a whole, as one JSON object.
//
// The leading agent replaces it whenever something changes, and about once a second for the times at which hosts were
// last heard. It is written beside and renamed, so a reader sees a whole file. After the run has ended it stays, with
// the state "ended".
//
// {"version", "epoch", "state", "leader", "restarts", "layout", "since", "hosts", "fault", "goodput", "copy_every"};
// a host is {"name", "address", "pid", "role", "heard", "ranks"}, a fault {"time", "step", "text", "cost_seconds"}.
// Times are seconds since 1970. Text that is not known is null, and so are `fault`, `cost_seconds`, `goodput` and
// `copy_every` where there is none.
//
// Reading: the file may come from anywhere. Nothing when there is none; UserError (bad_input_file) for one that is
// something else, larger than kMostLaunchBytes, or of a later version. Other fields are ignored.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class LaunchPhase : std::uint8_t {
  starting,    // the ranks of an epoch are being started, and none has completed a step
  running,     // they train
  recovering,  // a fault was found, and what follows it is under way
  waiting,     // for hosts: too few are left to train
  ended,
};
inline constexpr int kLaunchPhases = 5;
constexpr std::string_view name_of(LaunchPhase phase) {
  constexpr std::array<std::string_view, kLaunchPhases> kNames = {"starting", "running", "recovering", "waiting",
                                                                  "ended"};
  return kNames[static_cast<std::size_t>(phase)];
}

enum class HostRole : std::uint8_t {
  leader,  // its agent decides, and writes the file
  member,
  spare,  // it has an agent and no ranks
  lost,   // nothing was heard of it for too long, or it was left out
};
inline constexpr int kHostRoles = 4;
constexpr std::string_view name_of(HostRole role) {
  constexpr std::array<std::string_view, kHostRoles> kNames = {"leader", "member", "spare", "lost"};
  return kNames[static_cast<std::size_t>(role)];
}

struct LaunchedHost {
  std::string name;
  std::string address = {};  // where its agent listens; empty: it does not
  std::int64_t pid = 0;      // of its agent; 0: not known
  HostRole role = HostRole::member;
  double heard = 0;             // when its agent was last heard, on the leader's clock
  std::vector<int> ranks = {};  // that it has in this epoch
};

// The last one.
struct LaunchFault {
  double time = 0;                          // when it was found
  std::int64_t step = 0;                    // the last that was completed before
  std::string text = {};                    // one line: what has happened, where, and what was decided
  std::optional<double> cost_seconds = {};  // from its discovery to the next completed step; nothing: not yet known
};

struct LaunchState {
  static constexpr std::int64_t kVersion = 1;

  std::int64_t epoch = 0;  // of membership: grows when the ranks are started anew
  LaunchPhase state = LaunchPhase::starting;
  std::string leader = {};  // the host's name
  std::int64_t restarts = 0;
  std::string layout = {};  // of this epoch
  double since = 0;         // when the state was entered
  std::vector<LaunchedHost> hosts = {};
  std::optional<LaunchFault> fault = {};
  std::optional<double> goodput = {};           // 0 to 1 (telemetry/goodput.h)
  std::optional<std::int64_t> copy_every = {};  // steps between copies of the state in other hosts' memory
};

// Of a file; a text in it is cut at kMostLaunchTextBytes when written, refused beyond when read; ranks over all hosts.
inline constexpr std::size_t kMostLaunchBytes = 16 << 20, kMostLaunchTextBytes = 4 << 10;
inline constexpr std::size_t kMostLaunchHosts = 1 << 16, kMostLaunchRanks = 1 << 20;

inline std::filesystem::path launch_file(const std::filesystem::path& run) { return run / "launch.json"; }

// One line. Bytes that are not UTF-8 are replaced.
std::string to_json_line(const LaunchState& state);
// EnvironmentError where the disk does not take it.
void write_launch_state(const std::filesystem::path& path, const LaunchState& state);

std::optional<LaunchState> read_launch_state(const std::filesystem::path& path);
// The same of a text in memory; `where` names it in messages.
LaunchState parse_launch_state(std::string_view text, const std::string& where);

}  // namespace lockstep
