#include "telemetry/rank_folder.h"

#include <fmt/format.h>

#include <system_error>

#include "base/error.h"
#include "base/system_failure.h"

namespace lockstep {

namespace {
constexpr const char* kRankFolder = "ranks";
}  // namespace

std::filesystem::path rank_file(const std::filesystem::path& run_folder, int rank, std::string_view ending) {
  LOCKSTEP_CHECK(rank >= 0, "rank {}", rank);
  return run_folder / kRankFolder / fmt::format("rank-{:05}.{}", rank, ending);
}

void make_rank_folder(const std::filesystem::path& run_folder) {
  const std::filesystem::path folder = run_folder / kRankFolder;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw EnvironmentError(system_failure(folder, "mkdir", error.value()));
}

}  // namespace lockstep
