// Which hosts a launch has, and which of them this one is: from its options, or from a Slurm job.
//
// Slurm: where SLURM_JOB_ID is set and this process is a step's task (SLURM_PROCID), one task per node is an agent: the
// nodes are those of SLURM_STEP_NODELIST, in the scheduler's order, and this is number SLURM_NODEID. What srun also
// sets for MPI programs (PMI_RANK, PMIX_RANK and the like) is of no meaning to an agent and its ranks. Elsewhere
// --hosts names them, and --host which is this one; without it, the one that has this machine's name or an address of
// it.
//
// Failure: UserError (usage), one line.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace lockstep {

struct LaunchHosts {
  std::vector<std::string> names = {};  // or addresses; none: this host alone
  int mine = 0;                         // its place among them
  bool by_scheduler = false;            // the scheduler has started the others' agents
};

using LaunchVariables = std::function<const char*(const char* name)>;  // null where it is not set

// `listed`: what --hosts says, "a,b,c"; `host`: what --host says.
LaunchHosts launch_hosts(const std::string& listed, const std::string& host, const LaunchVariables& variable);

// Whether this process is a task that srun has started, and no mpirun within it.
bool is_scheduler_task(const LaunchVariables& variable);
// Takes what srun has set for MPI out of this process's environment: the ranks that it starts are no tasks of srun's.
// Before there are threads.
void forget_scheduler_ranks();

// How often the scheduler has queued this job again (SLURM_RESTART_COUNT); 0 outside of a job.
int times_queued_again(const LaunchVariables& variable);

// "a[1-3,7],b" as a1 a2 a3 a7 b, the way Slurm writes lists of nodes; numbers keep their leading zeros. UserError where
// it is none, or more than 4,096 nodes.
std::vector<std::string> expand_node_list(const std::string& list);

// The words that start a command on another host: `remote` with {host} replaced ("ssh {host}", "ip netns exec {host}"),
// then the command, which is quoted for a shell where the program is ssh or rsh.
std::vector<std::string> remote_command(const std::string& remote, const std::string& host,
                                        const std::vector<std::string>& command, const std::string& folder);

}  // namespace lockstep
