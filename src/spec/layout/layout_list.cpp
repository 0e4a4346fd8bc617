#include "spec/layout/layout_list.h"

#include "base/error.h"
#include "spec/layout/layout_toml.h"
#include "spec/text/text_input.h"

namespace lockstep {

namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string_view::npos ? "" : text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

LayoutSpec parsed(std::string_view text, const std::string& where, std::span<const std::string> sets) {
  try {
    return parse_layout(text, sets);
  } catch (const UserError& error) {  // reported with the line that it came from
    constexpr std::string_view kOption = "--layout ";
    std::string what = error.what();
    if (what.starts_with(kOption)) what.erase(0, kOption.size());
    throw UserError(error.code(), fmt::format("{}: {}", where, what), "");
  }
}

}  // namespace

std::vector<ListedLayout> read_layout_list(const std::filesystem::path& file, std::span<const std::string> sets) {
  return parse_layout_list(read_text_file(file, kMostListBytes, ExitCode::usage), file.string(), sets);
}

std::vector<ListedLayout> parse_layout_list(std::string_view text, const std::string& name,
                                            std::span<const std::string> sets) {
  std::vector<ListedLayout> list;
  int number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    line = trimmed(line.substr(0, line.find('#')));
    at = end + 1;
    ++number;
    if (line.empty()) continue;
    const std::string where = fmt::format("{}:{}", name, number);
    if (list.size() == kMostListed)
      throw UserError(ExitCode::usage, fmt::format("{}: more than {} layouts", where, kMostListed),
                      "split the file into several");
    list.push_back({.text = std::string(line), .where = where, .layout = parsed(line, where, sets)});
  }
  if (list.empty())
    throw UserError(ExitCode::usage, fmt::format("{}: it names no layout", name),
                    "write one per line, as in dp=2,pp=2,zero=3");
  return list;
}

}  // namespace lockstep
