// What a person sees of a training run: the table before it, a line a step, and how it ended.
//
// On a terminal lines have colour (cli/terminal.h), a bar and the time left; elsewhere they are plain. Everything goes
// to standard output; notes also go to the run folder's log.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>

#include "plan/plan.h"
#include "spec/run_spec.h"
#include "telemetry/metrics_file.h"
#include "train/loop.h"
#include "train/run_folder.h"

namespace lockstep {

class TrainView final : public Watcher {
 public:
  // `stop` becomes true when the run should end after the step at hand.
  TrainView(const RunSpec& spec, const RunFolder& folder, std::int64_t first_step, const std::atomic<bool>& stop);
  ~TrainView() override;

  void show_start(const Plan& plan, const RunData& data, const std::string& machine);
  void show_end(Ending ending, const Progress& progress, const Plan& plan, const Ledger& ledger,
                std::optional<std::int64_t> outside);

  void stepped(const StepRecord& record) override;
  void evaluated(const EvalRecord& record) override;
  void saved(std::int64_t step) override;
  void note(const std::string& line) override;
  void resolved(const std::string& run_file) override { folder_.write_run_file(run_file); }
  bool wants_stop() override { return stop_; }

 private:
  void print(const std::string& line);
  std::string bar(std::int64_t step) const;

  const RunSpec& spec_;
  const RunFolder& folder_;
  const std::atomic<bool>& stop_;
  bool terminal_, colour_;
  MetricsFile metrics_;
  std::FILE* log_;
  std::int64_t first_step_;
  std::chrono::steady_clock::time_point start_;
  double first_loss_ = 0, last_loss_ = 0, last_eval_ = 0;
  bool any_step_ = false, any_eval_ = false;
};

}  // namespace lockstep
