// The run folders below a folder.
//
// Links are never followed, whether to folders or to files, so nothing outside the folder can be read through it; the
// folder itself may be one. At most kMostDepth levels, kMostFolders folders and kMostRuns runs are looked at.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

inline constexpr int kMostDepth = 4;
inline constexpr std::size_t kMostFolders = 20'000, kMostRuns = 1'000;

struct FoundRun {
  std::string name;  // its path from the folder; the folder's own name where that is the run
  std::filesystem::path folder;
};

// In the order of their names. Folders that cannot be read are skipped, as are those inside of a run.
std::vector<FoundRun> find_runs(const std::filesystem::path& root);

// Why the files of a run cannot be read: a link, or what is no plain file, by its name; empty: they can.
std::string unreadable_file(const std::filesystem::path& run_folder);

}  // namespace lockstep
