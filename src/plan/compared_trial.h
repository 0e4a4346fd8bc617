// One layout of a comparison (plan/comparison.h): its ranks train some steps in each round, and what they held, sent
// and took is kept.
//
// Ranks are threads of this process, or this process is one of them and the others are processes too. Of processes,
// each measures itself and tells all the others after a round, so that all of them have the same figures.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/recorder.h"
#include "plan/compared_round.h"
#include "plan/comparison.h"
#include "train/training_run.h"

namespace lockstep {

class ComparedTrial {
 public:
  // Of a laid out run. Spec, data and options outlive it; the data is that of all ranks, or of this process.
  ComparedTrial(const RunSpec& spec, const RunData& data, const ComparisonOptions& options);

  // Why it is left out: all its ranks, or the fullest of the processes, need more memory than is free.
  std::optional<std::string> why_it_does_not_fit() const;
  // Before it runs. False: it was stopped.
  bool forecast(Calibrator& calibrator, int cores);
  // The same by a machine's file.
  void predict(const MachineSpec& machine);
  // Trains from the beginning; with local steps, as many as are a multiple of those between synchronizations. False: it
  // was stopped, and nothing of it counts.
  bool round(std::int64_t steps);
  bool has_round() const { return !rounds_[0].step.empty(); }
  ComparedLayout result();  // after a round
  const LayoutSpec& layout() const { return spec_.layout; }

 private:
  class Stop;
  bool on_gpu() const { return device_of(spec_) == Device::cuda; }
  bool keeps_spans() const;
  Plan plan_of(int rank) const;
  bool round_of_threads(std::int64_t steps);
  bool round_of_processes(std::int64_t steps);
  TrainingRun::Where place(Recorder& ranks, Communicator& given, CommLog& log) const;
  bool train(std::unique_ptr<Communicator> comm, std::int64_t steps, Stop& stop);
  double typical(const std::vector<double>& steps) const;
  void add_bubbles(std::int64_t steps);
  void add_round_time(std::int64_t steps);

  const RunSpec& spec_;
  const RunData& data_;
  const ComparisonOptions& options_;
  std::vector<ComparedRound> rounds_;  // by rank: times of all rounds so far, and the rest of the last one
  std::vector<double> bubbles_;        // by step
  std::vector<double> round_seconds_;  // by round: the median step, mean over ranks
  std::shared_ptr<const StepLists> lists_;
  ComparedLayout compared_;
};

}  // namespace lockstep
