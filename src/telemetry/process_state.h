// What this host knows of the processes of a run.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace lockstep {

// What the system says of a rank's process, if that is on this host.
enum class ProcessState { unknown, running, stopped, gone };
ProcessState process_state(const std::string& host, std::int64_t pid);
ProcessState process_state(std::int64_t pid);  // of this host

// Whether a process of this host holds a flock on the file. Asks /proc/locks and takes no lock itself, which would turn
// away a run that begins at that moment. Nothing where that cannot be read; no file: nobody does.
std::optional<bool> lock_is_held(const std::filesystem::path& file);

}  // namespace lockstep
