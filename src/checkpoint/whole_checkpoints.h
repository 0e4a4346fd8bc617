// Which checkpoints of a folder are whole, as far as one process knows without reading all of them again at each save.
//
// A checkpoint is read and its checksums verified once. From then on it counts as whole while none of its files has
// been touched: same inode, size and times of change. Damage that leaves no trace in these is found when a run resumes
// or `lockstep inspect` reads it.
//
// Used by one thread at a time.
#pragma once
#include <filesystem>
#include <map>
#include <string>

namespace lockstep {

class WholeCheckpoints {
 public:
  bool is_whole(const std::filesystem::path& checkpoint);
  void add(const std::filesystem::path& checkpoint);  // one that was read back a moment ago
  void forget(const std::filesystem::path& checkpoint);

 private:
  std::map<std::string, std::string> known_;  // path -> what its files looked like
};

}  // namespace lockstep
