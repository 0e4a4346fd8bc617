// Parameter servers and workers that meet apart, so that a worker may die and join while the others go on
// (comm/apart/worker_links.h): how their processes find each other.
//
// The servers meet as ranks of a launch do (cli/start_ranks.h), and so do the ranks of each worker. The first server
// writes to `.servers` in the run folder where all their ranks wait for workers, and the keys of this run, for its user
// alone to read. A worker that comes reads that file until it is let in; one that an earlier run has left does no harm.
#pragma once
#include <filesystem>
#include <memory>

#include "cli/launch_processes.h"
#include "comm/apart/worker_links.h"
#include "train/run_data.h"

namespace lockstep {

// Which of the processes this is that `lockstep launch` has started so. UserError (usage) where it has not, or where no
// worker of the run may die.
LaunchedProcess apart_place(const RunSpec& spec);

apart::ApartMesh apart_mesh(const LayoutSpec& layout);

// A digest of what a worker has in common with the servers: program, settings, data.
std::string apart_settings(const RunSpec& spec, const RunData& data);

// A server's rank. `party`: of all servers; they construct theirs at the same point.
class ApartServer {
 public:
  ApartServer(const RunSpec& spec, const std::string& settings, Communicator& party);
  ~ApartServer();
  Communicator& mesh() { return *mesh_; }
  apart::WorkerLinks& workers() { return *links_; }

 private:
  std::filesystem::path file_;
  std::string written_;  // to it, by the first server
  std::unique_ptr<apart::WorkerLinks> links_;
  std::unique_ptr<Communicator> mesh_;
};

// Runs this process as a worker's rank until the run is over. The exit code.
int run_worker(RunSpec spec, const LaunchedProcess& place);

}  // namespace lockstep
