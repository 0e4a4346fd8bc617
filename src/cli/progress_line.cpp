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

EmptyFolderRemoved::EmptyFolderRemoved(const std::filesystem::path& folder) {
  std::error_code ignored;
  std::filesystem::path at = std::filesystem::absolute(folder, ignored).lexically_normal();
  for (; at.has_relative_path() && !std::filesystem::exists(at, ignored); at = at.parent_path())
    not_there_.push_back(at);
}

EmptyFolderRemoved::~EmptyFolderRemoved() {
  std::error_code ignored;
  for (const std::filesystem::path& folder : not_there_) std::filesystem::remove(folder, ignored);  // where it is empty
}

}  // namespace lockstep
