// Which checkpoints of a folder are whole, as far as one process knows without reading all of them again at each save.
//
// A checkpoint is read and its checksums verified once. From then on it counts as whole while none of its files has
// been touched: same inode, size and times of change. Damage that leaves no trace in these is found when a run resumes
// or `lockstep inspect` reads it.
//
// And which of them hold state that was checked before it was saved: the run's check_state, which is in the manifest,
// was on.
//
// Used by one thread at a time.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace lockstep {

class WholeCheckpoints {
 public:
  bool is_whole(const std::filesystem::path& checkpoint);
  void add(const std::filesystem::path& checkpoint);  // one that was read back a moment ago
  void forget(const std::filesystem::path& checkpoint);
  bool is_checked(const std::filesystem::path& checkpoint);  // of one that is whole

 private:
  std::map<std::string, std::string> known_;  // path -> what its files looked like
  std::map<std::string, bool> checked_;       // of those
};

// Whether the run that this run file is of checks its state before it saves.
bool checks_state(std::string_view run_file);

}  // namespace lockstep
