#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "cli/start_ranks.h"

namespace lockstep {

bool on_terminal(int descriptor) {
  const char* const kind = std::getenv("TERM");
  return isatty(descriptor) != 0 && kind && std::string_view(kind) != "dumb" && !launched_as_one_of_many();
}

bool takes_colour(int descriptor) {
  const char* const refused = std::getenv("NO_COLOR");
  return on_terminal(descriptor) && !(refused && *refused);
}

int terminal_columns(int descriptor) {
  constexpr int kUsual = 80;
  winsize size{};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

std::string cut_to_columns(std::string_view line, int columns) {
  int filled = 0;
  bool coloured = false;
  std::size_t at = 0;
  while (at < line.size()) {
    if (line[at] == '\033') {
      coloured = true;
      while (at < line.size() && line[at] != 'm') ++at;
      if (at < line.size()) ++at;
      continue;
    }
    if (filled == columns) return std::string(line.substr(0, at)) + (coloured ? "\033[0m" : "");
    ++filled;
    do ++at;
    while (at < line.size() && (static_cast<unsigned char>(line[at]) & 0xC0) == 0x80);
  }
  return std::string(line);
}

std::string whole_fields(std::string_view line, int columns) {
  constexpr std::string_view kBetween = "  ";
  for (std::string_view kept = line; !kept.empty(); kept = kept.substr(0, kept.rfind(kBetween))) {
    if (const std::string cut = cut_to_columns(kept, columns); cut == kept) return cut;
    if (kept.find(kBetween) == std::string_view::npos) return cut_to_columns(kept, columns);
  }
  return "";
}

}  // namespace lockstep
