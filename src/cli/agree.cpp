#include "cli/agree.h"

#include <cstdio>

#include "cli/build_id.h"

namespace lockstep {

void require_none(const std::optional<std::string>& problem, const TextExchange& exchange, int rank,
                  const Refusing& how) {
  if (!problem) return;
  if (rank == 0) {
    fmt::print(stderr, "lockstep: {}\n", UserError(how.code, *problem, how.remedy).what());
    std::fflush(stderr);
  }
  exchange("");  // a launcher may end all as soon as one has ended: none ends before it is reported
  throw AllRefuse{how.code};
}

void require_agreement(const NamedValues& mine, const TextExchange& exchange, int rank, const Refusing& how) {
  require_none(find_disagreement(mine, exchange), exchange, rank, how);
}

std::string program_version() { return fmt::format("{}, build {}", LOCKSTEP_VERSION, build_id()); }

void require_same_program(const std::string& command, const TextExchange& exchange, int rank) {
  require_agreement({{"command", "lockstep " + command}}, exchange, rank,
                    {.remedy = "start the same command on all ranks"});
  require_agreement({{"program", program_version()}}, exchange, rank,
                    {.remedy = "start the same build of lockstep on all ranks"});
}

}  // namespace lockstep
