// Which processes of one mpirun will join the ranks, and which never will: known before MPI itself has started.
//
// MPI_Init waits until every process that mpirun has started calls it, and hangs where one does not. So each process
// leaves a file in the folder that mpirun keeps for the job on each host and removes at its end: that it joins, or
// which command it runs that joins no ranks. A process that waits in MPI_Init reads what this host's other processes
// have left. A launcher without such a folder (PMIX_SERVER_TMPDIR) has no files, and the deadline alone ends the wait.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::mpi {

class LaunchRegistry {
 public:
  using Variables = std::function<const char*(const char* name)>;  // null where it is not set
  explicit LaunchRegistry(const Variables& variable);
  static LaunchRegistry of_environment();

  int rank() const { return rank_; }    // -1 where the launcher does not say
  int ranks() const { return ranks_; }  // of the job; 0 where it does not say

  // This process joins the ranks; or runs that command, which does not.
  void will_join() const;
  void will_not_join(const std::string& command) const;

  // A process of this host that will not join, and its command.
  struct NotJoining {
    int rank;
    std::string command;
  };
  std::optional<NotJoining> find_not_joining() const;
  // Whether this process is the one to report it: the first of this host that joins.
  bool is_first_here() const;
  // Which ranks have not come: "rank 1 has not come"; with several hosts, what is known here.
  std::string missing() const;

 private:
  std::vector<int> left(const std::string& what) const;  // by whom, in order
  std::filesystem::path file(const std::string& what, int rank) const;
  void leave(const std::string& what, const std::string& line) const;

  std::filesystem::path folder_;  // empty: there is none
  std::string job_;
  int rank_ = -1, ranks_ = 0, here_ = 0;  // here_: processes on this host
};

}  // namespace lockstep::mpi
