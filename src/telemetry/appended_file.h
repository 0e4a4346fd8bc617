// A file that grows by whole lines, and survives a disk that is full for a while.
//
// What cannot be written now is kept, in order, and written before what comes next; so a reader never sees a line twice
// or out of order, and half a line only until there is room again. What is kept is bounded: beyond the bound whole
// lines are dropped, and counted. Only construction throws.
//
// Used by one thread at a time; descriptor() may be written to by a signal handler.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep {

class AppendedFile {
 public:
  static constexpr std::size_t kMostKept = 16 << 20;  // bytes

  // Takes a descriptor that appends. `path` is for messages.
  AppendedFile(std::filesystem::path path, int descriptor, std::size_t most_kept = kMostKept);
  // Opens or makes the file. EnvironmentError when that fails.
  explicit AppendedFile(const std::filesystem::path& path);
  ~AppendedFile();  // tries once more
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  void write(const std::string& lines);                    // "" tries once more to write what was kept
  const std::string& failure() const { return failure_; }  // why not all is written; empty: all is
  std::int64_t dropped() const { return dropped_; }        // lines that will never be
  int descriptor() const { return descriptor_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::size_t most_kept_;
  std::string kept_, failure_;
  std::int64_t dropped_ = 0;
};

}  // namespace lockstep
