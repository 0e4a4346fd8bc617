#include "comm/mpi/launch_registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "comm/agreement.h"
#include "comm/failure_text.h"

namespace lockstep::mpi {

namespace {

const char* const kJoining = "joins";
const char* const kNotJoining = "away";
constexpr int kMostRanks = 1 << 20;

int number(const char* text, int otherwise) {
  if (!text) return otherwise;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  return end != text && *end == '\0' && value >= 0 && value <= kMostRanks ? static_cast<int>(value) : otherwise;
}

}  // namespace

LaunchRegistry::LaunchRegistry(const Variables& variable) {
  const char* const rank = variable("OMPI_COMM_WORLD_RANK");
  rank_ = number(rank ? rank : variable("PMIX_RANK"), -1);
  ranks_ = number(variable("OMPI_COMM_WORLD_SIZE"), 0);
  here_ = number(variable("OMPI_COMM_WORLD_LOCAL_SIZE"), 0);
  const char* const folder = variable("PMIX_SERVER_TMPDIR");
  const char* const job = variable("PMIX_NAMESPACE");
  if (!folder || !job || rank_ < 0) return;
  folder_ = folder;
  for (const char* c = job; *c != '\0'; ++c) job_ += *c == '/' ? '_' : *c;
}

LaunchRegistry LaunchRegistry::of_environment() {
  return LaunchRegistry([](const char* name) -> const char* { return std::getenv(name); });
}

std::filesystem::path LaunchRegistry::file(const std::string& what, int rank) const {
  return folder_ / fmt::format("lockstep-{}-{}-{}", job_, what, rank);
}

// What cannot be written is not read either: then the deadline ends the wait.
void LaunchRegistry::leave(const std::string& what, const std::string& line) const {
  if (!folder_.empty()) std::ofstream(file(what, rank_)) << line << '\n';
}

void LaunchRegistry::will_join() const { leave(kJoining, ""); }
void LaunchRegistry::will_not_join(const std::string& command) const { leave(kNotJoining, command); }

// One listing of the folder: of many ranks, only this host's few have left anything in it.
std::vector<int> LaunchRegistry::left(const std::string& what) const {
  std::vector<int> ranks;
  const std::string begin = fmt::format("lockstep-{}-{}-", job_, what);
  std::error_code ended;
  for (std::filesystem::directory_iterator at(folder_, ended), end; !ended && at != end; at.increment(ended))
    if (const std::string name = at->path().filename(); name.starts_with(begin))
      if (const int rank = number(name.c_str() + begin.size(), -1); rank >= 0) ranks.push_back(rank);
  std::ranges::sort(ranks);
  return ranks;
}

std::optional<LaunchRegistry::NotJoining> LaunchRegistry::find_not_joining() const {
  for (const int rank : left(kNotJoining)) {
    std::string command;
    if (std::getline(std::ifstream(file(kNotJoining, rank)), command)) return NotJoining{rank, command};
  }
  return std::nullopt;
}

bool LaunchRegistry::is_first_here() const {
  const std::vector<int> joined = left(kJoining);
  return joined.empty() || joined.front() >= rank_;
}

std::string LaunchRegistry::missing() const {
  if (folder_.empty() || ranks_ == 0) return "not all of its processes have come";
  const std::vector<int> came = left(kJoining);
  std::vector<int> others;
  for (int rank = 0; rank < ranks_; ++rank)
    if (!std::ranges::binary_search(came, rank)) others.push_back(rank);
  if (here_ == ranks_ && !others.empty())
    return fmt::format("{} {} not come", ranks_text(others), has_or_have(others.size()));
  if (others.empty()) return "all ranks have come, and it has not ended";
  const auto seen = static_cast<int>(came.size());
  return fmt::format("of the {} processes on this host {} {} come ({}), and it waits for others of {}", here_, seen,
                     has_or_have(came.size()), ranks_text(came), ranks_text(others));
}

}  // namespace lockstep::mpi
