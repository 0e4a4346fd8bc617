// Which processes of one mpirun have come to join the ranks, and which never will: known before MPI itself has started.
//
// MPI_Init waits until every process that mpirun has started calls it, for ever where one does not. So each process
// leaves a file in the folder that mpirun keeps for the job on each host and removes at its end: that it joins, or
// which command it runs that joins nobody. Whoever waits in MPI_Init looks what this host's others have left. A
// launcher without such a folder (PMIX_SERVER_TMPDIR) has no files, and the deadline alone ends the wait.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::mpi {

class Attendance {
 public:
  using Variables = std::function<const char*(const char* name)>;  // null where it is not set
  explicit Attendance(const Variables& variable);
  static Attendance of_environment();

  int rank() const { return rank_; }    // -1 where the launcher does not say
  int ranks() const { return ranks_; }  // of the job; 0 where it does not say

  // This process joins the ranks; or runs that command, which does not.
  void join() const;
  void stay_away(const std::string& command) const;

  // A process of this host that will not join, and its command.
  struct Away {
    int rank;
    std::string command;
  };
  std::optional<Away> find_away() const;
  // Whether this process is the one to tell it: of this host's that join, the first.
  bool is_first_here() const;
  // Who has not come, in words: "rank 1 has not come"; of several hosts, what is known here.
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
