// The pictures of docs/pictures, by name: each drawn from the program's own data structures, with the same bytes on
// every machine.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

struct DrawingEntry {
  std::string_view name;  // docs/pictures/NAME.svg
  std::string_view what;  // it shows, in a line
  std::string (*draw)();
};
std::span<const DrawingEntry> drawings();

}  // namespace lockstep
