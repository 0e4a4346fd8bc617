// Keeps a run going: starts the ranks of this host, watches them, and after a fault starts them again.
//
// One agent per host. One of them leads (leader.h); the others do what it says and tell it what becomes of their ranks.
// A host alone is its own leader and has no connections. Agents find each other through the run folder
// (agent_folder.h) and talk over sealed connections (agent_link.h).
//
// Who leads: the first of the list at the start. When it is lost, the first of those that are left, and of a split
// network at most one side has a quorum (leader.h). An agent that does not lead and has had no answer for
// Leader::kLease seconds kills its ranks: so when others take them for dead they are. Then it looks for a leader.
//
// When `stop` is set the ranks of all hosts are asked to end, once, and the agents end with them.
#pragma once
#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "launch/leader.h"
#include "launch/rank_process.h"
#include "telemetry/stalls.h"

namespace lockstep {

enum class RankKind : std::uint8_t {
  threads,    // of one process
  mpirun,     // processes that one mpirun starts
  processes,  // that agents start themselves
};

struct AgentOptions {
  std::filesystem::path folder;  // the run's
  RankKind kind = RankKind::threads;
  std::filesystem::path copies = {};  // of the state, in this host's memory (copies_folder.h); empty: none are made
  // The words that start a rank, or all of them, in this epoch; throws where its layout is none.
  std::function<std::vector<std::string>(const EpochOrder& order)> command;
  Leader::Options lead = {};
  std::vector<std::string> hosts = {};  // addresses, in the order of agents; none: this one alone
  int agent = 0;                        // this one's place among them
  AgentFacts facts = {};                // name and slots of this host
  std::string version = {};             // of the program: agents have the same
  // How the agents of the other hosts are started, by this one; nothing: somebody else does.
  std::function<std::vector<std::string>(int agent)> remote = {};
  StallRules stalls = {};
  const std::atomic<bool>& stop;
  std::function<void(const std::string& message)> tell;
};

// The exit code. UserError where another agent is at work here, EnvironmentError where the run cannot be continued.
int keep_running(const AgentOptions& options);

}  // namespace lockstep
