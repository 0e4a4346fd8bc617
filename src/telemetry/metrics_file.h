// metrics.jsonl: appended a line at a time, each line whole when write() returns.
//
// Opening for a run that goes on from a checkpoint first drops the lines of steps after it (they will be written again)
// and a last line that a killed process left unfinished; the file is replaced beside and renamed. Failure:
// EnvironmentError naming the file and what the system said.
#pragma once
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>

namespace lockstep {

class MetricsFile {
 public:
  // Keeps the lines of steps up to `last_step`; 0 starts anew.
  MetricsFile(std::filesystem::path path, std::int64_t last_step);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  void write(const std::string& line);

 private:
  [[noreturn]] void fail(const char* call) const;
  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace lockstep
