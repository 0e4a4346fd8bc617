// The timeline of some steps of a run, of all ranks on one clock, for a trace (telemetry/trace.h).
//
// It watches as many steps as the run asks for, from the second on (the first loads code and tables). Then the ranks
// compare their clocks and hand what they saw to rank 0, which writes it. Where a stream runs ahead, watched steps wait
// for it after every action: they are slower than others, but times are those of the device. Every rank has one and
// calls it at the same points; nothing is watched where the run does not ask for it.
#pragma once
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "telemetry/trace.h"
#include "train/replica.h"

namespace lockstep {

class RunTrace final : public StepWatch {
 public:
  struct Options {
    std::int64_t steps = 0;         // to watch
    std::string layout;             // of the run, for the file
    Communicator* ranks = nullptr;  // on the host; none: alone
  };
  // The replica outlives it.
  RunTrace(Replica& replica, const Options& options) : replica_(replica), options_(options) {}
  ~RunTrace() override;
  RunTrace(const RunTrace&) = delete;
  RunTrace& operator=(const RunTrace&) = delete;

  // Before a step is begun, by its number (from 0 on); `first`: of those that this process runs.
  void before(std::int64_t step, bool first);
  bool watching() const { return watching_; }
  // Whether all steps to watch are done, and not yet collected.
  bool is_due() const { return watching_ && watched_ == options_.steps; }
  // All ranks call it: what they saw, on rank 0; there is none on others, or where nothing was watched.
  std::optional<Trace> collect();

  void comes_to(std::size_t index) override;
  void runs(const Action& action) override;
  void is_done_with(const Action& action) override;

 private:
  using Clock = std::chrono::steady_clock;
  double now() const { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

  Replica& replica_;
  Options options_;
  std::vector<int> positions_;
  bool watching_ = false, collected_ = false;
  std::int64_t step_ = 0, watched_ = 0;
  int position_ = -1;
  double came_ = 0, ran_ = 0;
  std::vector<TraceSpan> spans_;
};

// Seconds to add to this rank's clock to get rank 0's, by the quickest of some exchanges. All ranks call it.
double clock_offset(Communicator& ranks, const std::function<double()>& now);

}  // namespace lockstep
