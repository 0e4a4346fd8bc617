#include "cli/launched_rank.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace lockstep {

namespace {
constexpr time_t kSecondsForOthers = 3;

int number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  int value = 0;
  if (text) std::from_chars(text, text + std::strlen(text), value);
  return std::max(value, 0);
}
}  // namespace

int launched_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    if (std::getenv(name)) return number_in(name);
  return std::getenv("WORLD_SIZE") ? number_in("RANK") : 0;
}

bool speaks_for_all() {
  if (launched_rank() == 0) return true;
  timespec time{.tv_sec = kSecondsForOthers, .tv_nsec = 0};
  return nanosleep(&time, nullptr) == 0;  // a signal: the launcher is ending all of them
}

}  // namespace lockstep
