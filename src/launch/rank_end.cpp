#include "launch/rank_end.h"

#include <fmt/format.h>

#include <cstring>

#include "base/error.h"

namespace lockstep {

bool by_signal(const RankEnd& end) { return end.code > 128 && end.code != static_cast<int>(ExitCode::interrupted); }

std::string how_it_ended(const RankEnd& end) {
  if (!end.found.empty()) return end.found;
  if (!by_signal(end)) return fmt::format("has ended with exit code {}", end.code);
  const char* const name = ::strsignal(end.code - 128);
  return fmt::format("was ended by signal {} ({})", end.code - 128, name ? name : "unknown");
}

}  // namespace lockstep
