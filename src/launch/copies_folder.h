// A folder in this host's memory, for the copies of a run's state that its ranks make (checkpoint/state_copy.h).
//
//   /dev/shm/lockstep-0123456789abcdef-4711    of this agent: a sum of the run's path, and its process
//
// Only its user may read it. It outlives the ranks and goes with the agent. What an agent that was killed has left is
// found by the lock that nobody holds any more, and removed by the next one, of whichever run. A folder of another
// user, or a link, is left alone.
//
// Construction: EnvironmentError in one line where the place is not in memory, or nothing can be made there.
#pragma once
#include <filesystem>

namespace lockstep {

class CopiesFolder {
 public:
  // `place`: a folder of a file system in memory (tmpfs); `run`: the run's folder.
  CopiesFolder(const std::filesystem::path& place, const std::filesystem::path& run);
  ~CopiesFolder();
  CopiesFolder(const CopiesFolder&) = delete;
  CopiesFolder& operator=(const CopiesFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int lock_ = -1;
};

}  // namespace lockstep
