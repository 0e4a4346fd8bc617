#include "base/error.h"

#include <string_view>

namespace lockstep {

void throw_check_failed(const char* condition, const char* file, int line, fmt::string_view format,
                        fmt::format_args arguments) {
  // The path from src/ on is enough to find the place, and says nothing of the machine that compiled it.
  std::string_view place = file;
  if (const auto at = place.rfind("/src/"); at != std::string_view::npos) place.remove_prefix(at + 1);
  throw ProgramError(
      fmt::format("{}:{}: {} (check '{}' failed)", place, line, fmt::vformat(format, arguments), condition));
}

}  // namespace lockstep
