#include "cli/terminal.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "cli/launch.h"

namespace lockstep {

bool on_terminal(int descriptor) { return isatty(descriptor) != 0 && !launched_as_one_of_many(); }

bool takes_colour(int descriptor) {
  const char *const refused = std::getenv("NO_COLOR"), *const kind = std::getenv("TERM");
  if (refused && *refused) return false;
  return on_terminal(descriptor) && kind && std::string_view(kind) != "dumb";
}

}  // namespace lockstep
