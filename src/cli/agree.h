// All ranks of a command agree, or all of them end for the same reason, reported once.
//
// comm/agreement.h finds what differs. Rank 0 reports it on standard error. Then every rank throws AllRefuse, so that
// all have the same exit code and none fails because another has ended.
#pragma once
#include "base/error.h"
#include "comm/agreement.h"

namespace lockstep {

// Already reported. Not a std::exception: nothing has failed, and nothing is to be reported again.
struct AllRefuse {
  ExitCode code;
};

struct Refusing {
  ExitCode code = ExitCode::usage;
  std::string remedy = "start all ranks with the same settings";
};
void require_agreement(const NamedValues& mine, const TextExchange& exchange, int rank, const Refusing& how = {});
// What find_... functions found, the same on all ranks.
void require_none(const std::optional<std::string>& problem, const TextExchange& exchange, int rank,
                  const Refusing& how);

// Before anything else of a command that runs on ranks: all run this command, of one version and build of the program.
void require_same_program(const std::string& command, const TextExchange& exchange, int rank);

// "0.1.0, build 1f2e3d4c5b6a7988": the build is a checksum of the sources.
std::string program_version();

}  // namespace lockstep
