// Ranks that are processes, started by a launcher that says so in the environment, as torchrun does.
//
//   RANK, WORLD_SIZE          which of how many this process is
//   LOCAL_RANK                which of those on its machine: the number of its GPU, where it has one
//   MASTER_ADDR, MASTER_PORT  where rank 0 can be reached
//
// Rank 0 runs the coordinator of the control plane (comm/control) on MASTER_ADDR, at MASTER_PORT, or at any free port
// where that is taken: some launchers use it themselves. It writes port and token to `.control` in the run folder,
// which only its user can read and all ranks see (checkpoints need that too); the others wait for that file. The file
// is removed when the run ends; one that a killed run has left does no harm.
//
// On the cpu the ranks of a host share memory, and hosts exchange over TCP (comm/tcp/world.h). With a GPU each, host
// tensors are exchanged over nccl/host_side.h, gradients over NCCL; both are guarded (comm/control/guarded.h). Either
// way a rank that is gone, late or in another call is named on all ranks within the deadline, and an error of one rank
// ends all.
//
// Failure: UserError (usage) for variables, one line each; CommError for ranks that do not come.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "comm/control/coordinator.h"
#include "comm/control/session.h"
#include "comm/nccl/communicator.h"
#include "train/training_run.h"

namespace lockstep {

// What a launcher says of this process.
struct LaunchedProcess {
  int rank;
  int ranks;
  int local_rank;
  std::string address;
  int port;
};

// Null where the variable is not set.
using Variables = std::function<const char*(const char* name)>;

// Nothing where neither RANK nor WORLD_SIZE is set.
std::optional<LaunchedProcess> launched_process(const Variables& variable);

// Gives all ranks of `hosts`, whose tensors are on the host, what its rank 0 has: NCCL's id, over any communicator.
nccl::Share share_over(Communicator& hosts);

// Whole or not at all, and for nobody else to read: what ranks meet by.
void write_for_us(const std::filesystem::path& file, const std::string& text);

class ProcessWorld {
 public:
  struct Options {
    std::filesystem::path folder;  // the run's
    double deadline_seconds = 30;
    Device device = Device::cuda;      // tests: cpu, with something in NCCL's place
    std::string control = ".control";  // the file's name, of processes that are a part of the run's
    // NCCL, of ranks that compute on GPUs; none: they compute on the host.
    std::function<std::unique_ptr<nccl::Library>()> open = nccl::open_library;
  };
  // Joins the others; returns when all have come.
  ProcessWorld(const LaunchedProcess& place, Options options);
  ~ProcessWorld();

  int rank() const { return place_.rank; }
  int ranks() const { return place_.ranks; }
  int ranks_here() const { return ranks_here_; }  // on this host
  int place_here() const { return place_here_; }  // among those

  // Every rank's text, by rank, over the control plane. All ranks call it equally often.
  std::vector<std::string> gather(const std::string& mine);

  // Runs the body as this rank, once: with the ranks for tensors of the host, and what connects them on the
  // device, if that is another.
  // When it throws, the others fail with its message; the error propagates as comm/processes/run_rank.h says.
  using Body = std::function<void(Communicator& hosts, const TrainingRun::Connect& connect)>;
  void run(const Body& body);

 private:
  void meet();
  void run_on_host(const Body& body);
  void run_on_gpus(const Body& body);
  std::filesystem::path control_file() const { return options_.folder / options_.control; }

  LaunchedProcess place_;
  Options options_;
  int gathers_ = 0;
  std::string written_;  // to the control file, by rank 0
  std::unique_ptr<control::Coordinator> coordinator_;
  std::unique_ptr<control::Session> session_;
  int ranks_here_ = 1, place_here_ = 0;
};

}  // namespace lockstep
