// The run's clock: what every rank's steady clock shows, turned into one clock of all ranks (docs/monitoring.md).
//
// Scope `global`: the mean of every rank's clock. `local`: the mean of one clock per host, that of its first rank; the
// ranks of a host share its steady clock, and differ by nothing. `off`: each rank's own clock, and nobody knows how far
// it is from others.
//
// With C clocks among N ranks, a comparison is 2 · kRoundTrips · (C - 1) messages between the first rank and the other
// ranks whose clocks are compared, one clock after the other, then C - 1 that tell them the result, and N - C that tell
// the other ranks of their hosts: none at all where C is 1. Before the first one, scope `local` gathers the names of
// the hosts. Errors and drifts are those of telemetry/clock_estimate.h.
//
// All ranks make theirs, and compare, at the same point. The communicator is of the host, outlives this, and is not one
// whose messages are counted. Failure: CommError.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "spec/run/run_spec.h"
#include "telemetry/clock_estimate.h"

namespace lockstep {

double steady_now();          // seconds, of this host
std::string host_of_clock();  // names the steady clock that this process reads: the kernel that was booted

class RunClock {
 public:
  static constexpr int kRoundTrips = 8;

  struct Options {
    ClockScope scope = ClockScope::local;
    std::function<double()> now = steady_now;
    std::string host = host_of_clock();
  };
  RunClock(Communicator* ranks, const Options& options);  // no ranks: alone

  void compare();
  // Whether there are clocks to compare.
  bool compares() const { return clocks_ > 1; }

  double now() const { return options_.now(); }  // this rank's reading
  double of(double reading) const;               // on the run's clock
  std::optional<double> error(double reading) const;
  // Whether a comparison is due before this many seconds have passed: the error would be above `most`. Where the round
  // trips themselves are too slow for that, when it would have doubled since the last comparison.
  bool would_pass(double most, double seconds) const;
  double since_1970(double of_run) const;

  // On the first rank, of each clock that is compared: whose it is, and the mean less that clock.
  struct Compared {
    int rank = 0;
    double offset = 0, drift = 0, error = 0;
  };
  std::vector<Compared> compared() const;

 private:
  void find_hosts();
  RoundTrip exchange(int other);
  void hand_out(const std::vector<MeanClock>& results);

  Options options_;
  Communicator* ranks_;
  int clocks_ = 1;
  std::unique_ptr<Communicator> own_leaders_, host_;  // where scope is local and there are several hosts
  Communicator* leaders_ = nullptr;                   // those whose clocks are compared; none: another rank's is ours
  std::vector<int> leader_ranks_;                     // by clock
  std::vector<ClockEstimate> estimates_;              // on the first rank, by clock
  std::vector<MeanClock> all_;                        // likewise
  MeanClock clock_;
  double epoch_ = 0;  // seconds since 1970 when the run's clock shows 0
  double fresh_error_ = 0;
};

}  // namespace lockstep
