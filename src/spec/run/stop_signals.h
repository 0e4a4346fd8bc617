// The signals that a run file may name as a wish to save and end (run.stop_signals), beside SIGINT and SIGTERM.
//
// They are those that schedulers send before they take a machine away, and those whose default is to end the process:
// the program needs none of them for itself.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr std::array<std::string_view, 6> kStopSignals{"SIGHUP",  "SIGQUIT", "SIGALRM",
                                                              "SIGUSR1", "SIGUSR2", "SIGXCPU"};

// "USR1" and "SIGUSR1" are SIGUSR1; nothing for a name that is not in the list.
inline std::optional<std::string> stop_signal_of(std::string_view name) {
  for (const std::string_view known : kStopSignals)
    if (name == known || name == known.substr(3)) return std::string(known);
  return std::nullopt;
}

}  // namespace lockstep
