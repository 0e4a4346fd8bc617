// Starts the ranks of a command: as threads of this process, or this process as one rank of many.
//
// Without a launcher all ranks of a layout are threads. Under a launcher each process is one rank, and the number of
// processes decides the layout's dp. Under mpirun (comm/mpi/world.h), or a launcher that sets RANK and WORLD_SIZE as
// torchrun does (cli/launch_processes.h), ranks compute on the host, or on one GPU each with NCCL between them. An
// exception in one rank ends all of them (comm/threads/run_ranks.h, comm/processes/run_rank.h).
//
// Processes may have been started with different settings, programs or commands. They compare these as soon as they
// have joined, before anything is read or written. Where they differ, all exit with 2, and rank 0 says in what
// (cli/agree.h).
#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "cli/agree.h"
#include "cli/launch_processes.h"
#include "comm/communicator.h"
#include "spec/run/run_spec.h"
#include "train/training_run.h"

namespace lockstep {

// Ranks are processes that a launcher started, and this is one of them.
bool launched_as_one_of_many();
// How many there are on this host, as far as the launcher says.
int ranks_of_host();

// What a rank is given: where it runs, and who the others are.
struct RankPlace {
  Communicator& ranks;                // all of them, on the host
  int threads;                        // of its kernels
  bool alone_here;                    // no other rank is in this process
  TrainingRun::Connect connect = {};  // to the others where it computes; none: that is the host
};

class Launch {
 public:
  // Under a launcher the processes are all ranks there are, and the layout's dp becomes what its other axes leave of
  // them. UserError (usage) where these do not divide them, or where the command line has `told` another number of
  // ranks. `also` is what the ranks must have alike beside the run and the program: what the command was told.
  // A command that lays out the ranks itself, several times, leaves the layout as it is (Layout::any).
  // `servers`: of the processes the parameter servers alone meet here (cli/apart.h), and are the ranks that run.
  enum class Layout { adopted, any, servers };
  Launch(RunSpec& spec, const std::string& command, bool told = false, const NamedValues& also = {},
         Layout layout = Layout::adopted);
  ~Launch();

  int processes() const;       // that a launcher started; 0: ranks are threads
  int ranks_here() const;      // on this host: they share its memory and cores
  int ranks_a_device() const;  // that share what they compute on: a GPU is its rank's alone where ranks are processes
  // Runs the body as each rank that is in this process. All ranks may end together in it (AllRefuse).
  void run(const std::function<void(const RankPlace&)>& body);

 private:
  struct World;
  using Body = std::function<void(const RankPlace&)>;
  void join_as(LaunchedProcess place, bool told, Layout layout);
  std::optional<UserError> adopt(int processes, const std::string& launcher, const std::string& option, bool told);
  void run_joined(const Body& body);
  void run_under_mpi(const Body& body);

  RunSpec& spec_;
  std::unique_ptr<World> world_;
  int others_here_ = 0;  // ranks of this host that are not met here
};

}  // namespace lockstep
