#include "checkpoint/whole_checkpoints.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "checkpoint/checkpoint_reader.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// One line per file: everything that changes when its content does.
std::string look_of(const fs::path& checkpoint) {
  std::vector<std::string> lines;
  std::error_code error;
  for (fs::directory_iterator at(checkpoint, error), end; !error && at != end; at.increment(error)) {
    struct stat s {};
    if (::stat(at->path().c_str(), &s) != 0) return "";
    lines.push_back(fmt::format("{} {} {} {}.{} {}.{}\n", at->path().filename().string(), s.st_ino, s.st_size,
                                s.st_mtim.tv_sec, s.st_mtim.tv_nsec, s.st_ctim.tv_sec, s.st_ctim.tv_nsec));
  }
  if (error) return "";
  std::sort(lines.begin(), lines.end());
  std::string all;
  for (const std::string& line : lines) all += line;
  return all;
}

}  // namespace

void WholeCheckpoints::add(const fs::path& checkpoint) {
  known_[checkpoint.string()] = look_of(checkpoint);
  checked_.erase(checkpoint.string());
}

void WholeCheckpoints::forget(const fs::path& checkpoint) {
  known_.erase(checkpoint.string());
  checked_.erase(checkpoint.string());
}

bool WholeCheckpoints::is_checked(const fs::path& checkpoint) {
  const auto [known, added] = checked_.try_emplace(checkpoint.string(), false);
  if (!added) return known->second;
  try {
    known->second = checks_state(open_verified_checkpoint(checkpoint).progress().run_file);
  } catch (const UserError&) {  // it was whole a moment ago
    checked_.erase(known);
    return false;
  }
  return known->second;
}

// The text is the program's own (to_toml), with each key on a line; no other section has this one.
bool checks_state(std::string_view run_file) {
  constexpr std::string_view kKey = "\ncheck_state = ";
  const std::size_t at = run_file.find(kKey);
  return at != std::string_view::npos && at + kKey.size() < run_file.size() && run_file[at + kKey.size()] != '0';
}

bool WholeCheckpoints::is_whole(const fs::path& checkpoint) {
  const std::string look = look_of(checkpoint);
  if (const auto known = known_.find(checkpoint.string());
      known != known_.end() && !look.empty() && known->second == look)
    return true;
  forget(checkpoint);
  try {
    open_checkpoint(checkpoint);
  } catch (const UserError&) {
    return false;
  }
  known_[checkpoint.string()] = look;
  return true;
}

}  // namespace lockstep
