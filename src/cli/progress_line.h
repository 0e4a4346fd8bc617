// On a terminal, what is being tried; gone again when the result comes. And a folder that a comparison leaves no trace
// of.
#pragma once
#include <filesystem>
#include <string>

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

// Removes the folder in the end where it was not there before and is empty.
class EmptyFolderRemoved {
 public:
  explicit EmptyFolderRemoved(std::filesystem::path folder);
  ~EmptyFolderRemoved();
  EmptyFolderRemoved(const EmptyFolderRemoved&) = delete;
  EmptyFolderRemoved& operator=(const EmptyFolderRemoved&) = delete;

 private:
  std::filesystem::path folder_;
  bool was_there_;
};

}  // namespace lockstep
