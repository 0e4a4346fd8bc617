// Layouts in a file, one per line as --layout takes it; '#' begins a comment, and empty lines are ignored.
//
//   # what fits eight ranks
//   dp=8,zero=3
//   dp=2,pp=4,micro=8,schedule=zb-h1   # deep
//
// Failure: UserError (usage) that names file and line, for an invalid layout, a file without one, and a file that is
// too large to be meant.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spec/layout/layout_spec.h"

namespace lockstep {

struct ListedLayout {
  std::string text;   // as it was written
  std::string where;  // "list.txt:3"
  LayoutSpec layout;
};

inline constexpr std::size_t kMostListBytes = 1 << 20;
inline constexpr std::size_t kMostListed = 1000;

// Settings ("layout.micro=2") change one key of each.
std::vector<ListedLayout> read_layout_list(const std::filesystem::path& file, std::span<const std::string> sets = {});
// The same of a text in memory; `name` is its file's.
std::vector<ListedLayout> parse_layout_list(std::string_view text, const std::string& name,
                                            std::span<const std::string> sets = {});

}  // namespace lockstep
