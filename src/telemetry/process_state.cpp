#include "telemetry/process_state.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <fstream>

namespace lockstep {

ProcessState process_state(const std::string& host, std::int64_t pid) {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return host == name ? process_state(pid) : ProcessState::unknown;
}

ProcessState process_state(std::int64_t pid) {
  std::error_code error;
  if (pid <= 0 || !std::filesystem::exists("/proc/self/stat", error)) return ProcessState::unknown;
  std::ifstream in(fmt::format("/proc/{}/stat", pid));
  std::string text;
  if (!in || !std::getline(in, text)) return ProcessState::gone;
  // "4711 (name, which may hold anything) S …"
  const std::size_t end = text.rfind(')');
  if (end == std::string::npos || end + 2 >= text.size()) return ProcessState::unknown;
  switch (text[end + 2]) {
    case 'T':
    case 't':
      return ProcessState::stopped;
    case 'Z':
    case 'X':
      return ProcessState::gone;
    default:
      return ProcessState::running;
  }
}

std::optional<bool> lock_is_held(const std::filesystem::path& file) {
  struct stat about {};
  if (::stat(file.c_str(), &about) != 0) return false;
  std::ifstream locks("/proc/locks");
  if (!locks) return std::nullopt;
  // "12: FLOCK  ADVISORY  WRITE 4711 fd:01:393231 0 EOF"
  const std::string place = fmt::format(" {:02x}:{:02x}:{} ", major(about.st_dev), minor(about.st_dev), about.st_ino);
  for (std::string line; std::getline(locks, line);)
    if (line.find(" FLOCK ") != std::string::npos && line.find(place) != std::string::npos) return true;
  return false;
}

}  // namespace lockstep
