// The timeline of some steps of a run, of all ranks on one clock, for a trace (telemetry/trace.h).
//
// It watches as many steps as the run asks for, from the second on (the first loads code and tables): actions, what
// they wait for, messages, and memory wherever it changes. Then the ranks hand what they saw, on the run's clock, to
// rank 0, which writes it. Where a stream runs ahead, watched steps wait for it after every action: they are slower
// than others, but times are those of the device, and messages have the host's. Every rank has one and calls it at the
// same points; nothing is watched where the run does not ask for it.
#pragma once
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/traced.h"
#include "telemetry/trace.h"
#include "train/message_arrows.h"
#include "train/replica.h"
#include "train/run_clock.h"

namespace lockstep {

class RunTrace final : public StepWatch {
 public:
  struct Options {
    std::int64_t steps = 0;            // to watch
    LayoutSpec layout = {};            // of the run
    Communicator* ranks = nullptr;     // on the host; none: alone
    const RunClock* clock = nullptr;   // none: times are this rank's
    MessageTrace* messages = nullptr;  // none: messages are not shown
    const Ledger* ledger = nullptr;    // none: memory is not shown
  };
  // The replica, and what the options name, outlive it.
  RunTrace(Replica& replica, const Options& options) : replica_(replica), options_(options) {}
  ~RunTrace() override;
  RunTrace(const RunTrace&) = delete;
  RunTrace& operator=(const RunTrace&) = delete;

  // Before a step is begun, by its number (from 0 on); `first`: of those that this process runs.
  void before(std::int64_t step, bool first);
  // Whether before() would begin to watch.
  bool begins(bool first) const;
  bool watching() const { return watching_; }
  // Whether all steps to watch are done, and not yet collected.
  bool is_due() const { return watching_ && watched_ == options_.steps; }
  // All ranks call it: what they saw, on rank 0; there is none on others, or where nothing was watched.
  std::optional<Trace> collect();

  void comes_to(std::size_t index) override;
  void runs(const Action& action) override;
  void is_done_with(const Action& action) override;

 private:
  void note_memory();
  std::vector<MessageOfRank> put_on_clock();
  int rank() const { return options_.ranks ? options_.ranks->rank() : 0; }

  Replica& replica_;
  Options options_;
  std::vector<int> positions_;
  bool watching_ = false, collected_ = false;
  std::int64_t step_ = 0, watched_ = 0;
  int position_ = -1;
  double came_ = 0, ran_ = 0;
  std::vector<TraceSpan> spans_;
  std::vector<TraceMemory> memory_;
};

}  // namespace lockstep
