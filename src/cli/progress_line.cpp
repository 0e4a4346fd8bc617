#include "cli/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "cli/terminal.h"

namespace lockstep {

ProgressLine::ProgressLine(std::size_t all, bool shows) : all_(all), shown_(shows && on_terminal(STDERR_FILENO)) {}

void ProgressLine::show(const std::string& name) {
  ++done_;
  if (!shown_) return;
  fmt::print(stderr, "\r\033[K{}/{}  {}", done_, all_, name);
  std::fflush(stderr);
}

void ProgressLine::clear() {
  if (shown_) fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
}

EmptyFolderRemoved::EmptyFolderRemoved(std::filesystem::path folder) : folder_(std::move(folder)) {
  std::error_code ignored;
  was_there_ = std::filesystem::exists(folder_, ignored);
}

EmptyFolderRemoved::~EmptyFolderRemoved() {
  std::error_code ignored;
  if (!was_there_) std::filesystem::remove(folder_, ignored);  // where it is empty
}

}  // namespace lockstep
