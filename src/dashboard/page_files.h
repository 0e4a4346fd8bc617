// The page, its script and its charting library, embedded in the program (cmake/page.cmake).
#pragma once
#include <span>
#include <string_view>

namespace lockstep {

struct PageFile {
  std::string_view path, type, content;
};

// Nothing in a build that has no dashboard.
std::span<const PageFile> page_files();

// The packages, separated by spaces, that this build had not and the dashboard needs; empty: it has all.
std::string_view missing_packages();

}  // namespace lockstep
