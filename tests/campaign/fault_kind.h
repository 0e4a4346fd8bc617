// The kinds of fault that the campaign injects, and what each must lead to.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep::tests {

enum class RanksAs : std::uint8_t { threads, processes, mpirun, hosts };  // hosts: processes on several of them
inline constexpr std::array<std::string_view, 4> kRanksAs = {"threads", "processes", "mpirun", "hosts"};

enum class Follows : std::uint8_t {
  restart,  // ranks start again, and the culprit is named
  nothing,  // the run continues as if nothing were
  either,
  resume,  // the agent itself was killed and is started again: nobody is left to name anyone
};

struct FaultKind {
  std::string_view name;
  Follows follows;
  std::string_view ranks_as;  // where it can happen: letters t, p, m, h
};

inline constexpr std::array kFaultKinds = std::to_array<FaultKind>({
    {"sigkill", Follows::restart, "tpmh"},
    {"sigsegv", Follows::restart, "tpmh"},
    {"sigstop", Follows::restart, "tpmh"},
    {"exit-0", Follows::restart, "tpmh"},
    {"exit-5", Follows::restart, "tpmh"},
    {"exception", Follows::restart, "tpmh"},
    {"out-of-memory", Follows::restart, "tpmh"},
    {"two-at-once", Follows::restart, "pmh"},
    {"in-a-save", Follows::restart, "tpmh"},
    {"in-a-recovery", Follows::restart, "tpmh"},
    {"corrupted-checkpoint", Follows::restart, "tpmh"},
    {"bit-flip", Follows::either, "pmh"},
    {"slow-rank", Follows::nothing, "tpmh"},
    {"clock-jump", Follows::nothing, "tpmh"},
    {"disk-full", Follows::nothing, "tpmh"},
    {"disk-error", Follows::nothing, "tpmh"},
    {"disk-gone", Follows::nothing, "tpmh"},
    {"disk-read-only", Follows::nothing, "tpmh"},
    {"strangers", Follows::nothing, "ph"},
    {"agent-stopped", Follows::either, "tpmh"},
    {"agent-killed", Follows::resume, "tpm"},
    {"host-agent-killed", Follows::either, "h"},
    {"leader-killed", Follows::either, "h"},
    {"host-ranks-killed", Follows::restart, "h"},
    {"host-killed", Follows::either, "h"},
    {"network-cut", Follows::either, "h"},
    {"packet-loss", Follows::nothing, "h"},
});

}  // namespace lockstep::tests
