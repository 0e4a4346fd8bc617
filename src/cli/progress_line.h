// On a terminal, what is being tried; gone again when the result comes. And a folder that a comparison leaves no trace
// of.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

class ProgressLine {
 public:
  ProgressLine(std::size_t all, bool shows);
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void show(const std::string& name);
  void clear();

 private:
  std::size_t all_, done_ = 0;
  bool shown_;
};

// Removes the folder in the end, and those that it is in, where they were not there before and are empty.
class EmptyFolderRemoved {
 public:
  explicit EmptyFolderRemoved(const std::filesystem::path& folder);
  ~EmptyFolderRemoved();
  EmptyFolderRemoved(const EmptyFolderRemoved&) = delete;
  EmptyFolderRemoved& operator=(const EmptyFolderRemoved&) = delete;

 private:
  std::vector<std::filesystem::path> not_there_;  // the innermost first
};

}  // namespace lockstep
