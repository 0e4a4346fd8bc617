// A drill: training under mpirun to which something is done, and what each rank made of it.
//
// Ranks are started through a shell that keeps each one's words and exit code, since mpirun loses what is printed while
// it ends a job, and its own code says little. Needs mpirun in PATH. One drill at a time in a folder.
#pragma once
#include <sys/types.h>

#include <map>
#include <memory>

#include "support/program.h"

namespace lockstep::tests {

// Why there can be no drill here, in so many words for GTEST_SKIP; empty: there can.
std::string no_drill_here(bool as_root);

class Drill {
 public:
  struct Rank {
    int code = -1;       // -1: it was ended before it could tell
    double seconds = 0;  // from did() to its end
    std::string words;   // standard error
  };
  struct Ended {
    Outcome launcher;
    double seconds = 0;  // from did() to the launcher's end
    std::map<int, Rank> ranks;
    std::vector<pid_t> left;   // processes that are still there
    std::string text() const;  // for a test's message
  };

  // Training of a tiny model in `folder`, under this layout, of so many ranks, and with this deadline.
  Drill(const TemporaryFolder& folder, const std::string& layout, double deadline);
  const std::string out() const { return folder_ / "run"; }
  int ranks() const { return ranks_; }
  // `launcher`: all that comes before the command, number of ranks included; none: mpirun on this host. `each`: a line
  // of shell that each rank runs first, with the folder of what ranks tell in $told.
  void start(const std::vector<std::string>& more, const std::vector<std::string>& launcher = {},
             const std::string& each = "");
  // Returns when there is a checkpoint, or after half a minute: the processes by rank.
  std::map<int, pid_t> trains() const;
  void did();  // from now on seconds count
  // Returns when rank 0 has said so, or the run has ended.
  void said(const std::string& text) { running_->wait_for_output(text); }
  // Returns when there is another checkpoint than at the time of the call, or after half a minute.
  bool saves_again() const;
  // Waits for the end. What is left then is killed, and listed as left.
  Ended end();
  // Trains alone from the newest checkpoint, in two threads, until a step has been made; what went wrong, or nothing.
  std::string goes_on() const;

  // Arguments of training that never ends by itself and saves often.
  static std::vector<std::string> endless();

 private:
  std::map<int, pid_t> processes() const;
  std::string latest() const;  // the newest checkpoint's name; empty: none
  std::vector<std::string> train(const std::vector<std::string>& more) const;
  const TemporaryFolder& folder_;
  const int ranks_;
  std::unique_ptr<Program> running_;
  double did_ = 0;
};

}  // namespace lockstep::tests
