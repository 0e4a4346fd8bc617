// The timeline of some steps of a run, of all ranks on one clock, for a trace (telemetry/trace.h).
//
// It watches as many steps as the run asks for, from the second on (the first loads code and tables): actions, what
// they wait for, messages, and memory wherever it changes. Then the ranks hand what they saw, on the run's clock, to
// rank 0, which writes it. Where a stream runs ahead, events in it mark when actions and messages begin and end, and
// are read when the steps are done: nobody waits for the device, but once before the first step, to know its time.
// Every rank has one and calls it at the same points; nothing is watched where the run does not ask for it.
#pragma once
#include <memory>
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
    Stream* stream = nullptr;          // one that runs ahead; none: times are the host's
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
  bool holds_stream() const override { return false; }

 private:
  // Now: of a stream that runs ahead a number of `marks_`, until read_marks() puts the host's seconds in its place.
  double mark();
  void anchor();
  void read_marks(std::vector<MessageOfRank>& messages);
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
  std::vector<std::unique_ptr<Event>> marks_;  // in the stream, the first of them the anchor
  std::vector<std::size_t> first_marks_;       // of the watched steps
  double anchored_ = 0, anchor_error_ = 0;     // the host's time of the anchor
};

}  // namespace lockstep
