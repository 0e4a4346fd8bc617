#include "dashboard/found_runs.h"

#include <fmt/format.h>

#include <algorithm>

#include "telemetry/run_reader.h"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

class RunSearch {
 public:
  explicit RunSearch(const fs::path& root) : root_(root) {
    visit(root, 0);
    std::ranges::sort(runs, {}, &FoundRun::name);
  }
  std::vector<FoundRun> runs;

 private:
  void visit(const fs::path& folder, int depth) {
    if (runs.size() >= kMostRuns || ++folders_ > kMostFolders) return;
    if (looks_like_a_run(folder)) {
      const std::string name = folder.lexically_relative(root_).string();
      runs.push_back({.name = depth == 0 ? own_name() : name, .folder = folder});
      return;
    }
    if (depth == kMostDepth) return;
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
      std::error_code ignored;
      const bool plain = at->symlink_status(ignored).type() == fs::file_type::directory;
      if (plain && !at->path().filename().string().starts_with('.')) visit(at->path(), depth + 1);
    }
  }
  std::string own_name() const {
    std::error_code error;
    const std::string name = fs::canonical(root_, error).filename().string();
    return error || name.empty() ? "run" : name;
  }

  fs::path root_;
  std::size_t folders_ = 0;
};

}  // namespace

std::vector<FoundRun> find_runs(const fs::path& root) { return RunSearch(root).runs; }

std::string unreadable_file(const fs::path& folder) {
  const auto wrong = [](const fs::path& path, fs::file_type wanted) {
    std::error_code error;
    const fs::file_type type = fs::symlink_status(path, error).type();
    return type != fs::file_type::not_found && type != fs::file_type::none && type != wanted;
  };
  if (wrong(folder, fs::file_type::directory)) return "the folder is a link, which is not followed";
  for (const char* name : {"metrics.jsonl", "events.jsonl", "plan.json", "trace.json", "log.txt", "run.toml", ".lock"})
    if (wrong(folder / name, fs::file_type::regular) && wrong(folder / name, fs::file_type::directory))
      return fmt::format("{} is a link or no plain file", name);  // a folder has no lines: as if it were missing
  const fs::path ranks = folder / "ranks";
  if (wrong(ranks, fs::file_type::directory)) return "ranks is a link or no folder";
  std::error_code error;
  for (fs::directory_iterator at(ranks, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (at->symlink_status(ignored).type() != fs::file_type::regular && !ignored)
      return fmt::format("ranks/{} is a link or no plain file", at->path().filename().string());
  }
  return "";
}

}  // namespace lockstep
