#include "cli/terminal.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "cli/launch.h"

namespace lockstep {

bool on_terminal(int descriptor) {
  const char* const kind = std::getenv("TERM");
  return isatty(descriptor) != 0 && kind && std::string_view(kind) != "dumb" && !launched_as_one_of_many();
}

bool takes_colour(int descriptor) {
  const char* const refused = std::getenv("NO_COLOR");
  return on_terminal(descriptor) && !(refused && *refused);
}

}  // namespace lockstep
