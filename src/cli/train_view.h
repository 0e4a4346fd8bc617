// What a person sees of a training run: the table before it, one line per step, and how it ended.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>

#include "cli/rank_log.h"
#include "cli/status_line.h"
#include "plan/plan.h"
#include "spec/model/model_flops.h"
#include "spec/run/run_spec.h"
#include "telemetry/appended_file.h"
#include "telemetry/event_log.h"
#include "telemetry/metrics_file.h"
#include "telemetry/mfu_band.h"
#include "telemetry/prediction_score.h"
#include "telemetry/tensorboard.h"
#include "train/loop.h"
#include "train/run_folder.h"

namespace lockstep {

struct TrainViewOptions {
  bool quiet = false;    // neither the table nor steps, evaluations, saves and the end; notes and errors alone
  bool resumes = false;  // another try in the same folder, though it may have no checkpoint yet
  std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();  // setting up
  int rank = 0;                // that keeps the run folder's records
  std::int64_t log_every = 0;  // steps of which a line stays; 0: every one in a pipe, none on a terminal
};

class TrainView final : public Watcher {
 public:
  // `stop` becomes true when the run should end after the step at hand.
  TrainView(const RunSpec& spec, const RunFolder& folder, std::int64_t first_step, const std::atomic<bool>& stop,
            const TrainViewOptions& options = {});
  ~TrainView() override;

  void write_plan(const std::string& json);
  void show_start(const Plan& plan, const RunData& data, const std::string& machine);
  // The end compares it with what was measured.
  void expect(const PredictedStep& step) { predicted_ = step; }
  void show_end(Ending ending, const Progress& progress, const Plan& plan, const Ledger& ledger,
                std::optional<std::int64_t> outside);
  // The run has ended with an error, which is on its way to standard error: for the log.
  void failed(const std::string& reason) {
    write_held();
    print_last_step();
    write(status_.take_away());
    log("the run has failed: " + reason);
  }
  // What standard error is to say of a run that came to its end, and is no success: bad values, lines of metrics that
  // could not be written, an output whose reader has gone. Empty: nothing.
  std::string problem();

  void stepped(const StepRecord& record) override;
  void timed(std::int64_t step, const std::vector<TimesByUse>& times, const std::vector<SentByAxis>& sent) override;
  void evaluated(const EvalRecord& record) override;
  void saved(std::int64_t step) override;
  void happened(const LoggedEvent& event) override;
  void note(const std::string& line) override;
  void resolved(const std::string& run_file) override;
  bool wants_stop() override { return stop_ || nobody_reads_; }
  void ended_by(const std::string& reason) override { problem_ = reason; }

 private:
  void write(const std::string& bytes);
  void print(const std::string& line) { write(status_.print(line + "\n")); }
  void tell(const std::string& line);  // what a quiet run leaves to the log
  void print_last_step();
  void show_status(const StepRecord& record);
  void show_sums(const Progress& progress, const Plan& plan, const Ledger& ledger, std::optional<std::int64_t> outside);
  void show_verdict();
  void show_score();
  void log(const std::string& line) { log_.write(line + "\n"); }
  void write_metrics(const std::string& line);
  void write_held();
  template <class Record>
  void write_tensorboard(const Record& record);
  std::string bar(std::int64_t step) const;

  const RunSpec& spec_;
  SampleWork sample_work_;
  const RunFolder& folder_;
  const std::atomic<bool>& stop_;
  TrainViewOptions options_;
  bool colour_;
  StatusLine status_;
  MetricsFile metrics_;
  std::optional<AppendedFile> arrivals_;  // of an asynchronous run
  std::optional<TensorboardFile> tensorboard_;
  RankLog rank_log_;
  EventLog events_;
  AppendedFile log_;
  std::string problem_, closed_;  // why the run has ended; what is said of an output that nobody reads
  bool nobody_reads_ = false, tensorboard_told_ = false,
       metrics_told_ = false;  // that lines of metrics could not be written
  std::optional<std::chrono::steady_clock::time_point> metrics_told_at_;
  std::int64_t first_step_;
  std::chrono::steady_clock::time_point start_;
  double first_loss_ = 0, last_loss_ = 0, last_eval_ = 0;
  bool any_step_ = false, any_eval_ = false;
  std::optional<StepRecord> held_;  // of which the times follow
  TimesByUse times_;                // of all steps and ranks
  std::string last_step_;           // its line, where it was not printed
  RunMfu mfu_;
  std::optional<PredictedStep> predicted_;
  std::vector<MeasuredStep> measured_;  // where one was predicted
};

}  // namespace lockstep
