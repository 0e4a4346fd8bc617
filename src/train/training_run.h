// Set-up: everything a run works with, made from its spec.
//
// On its own device it is the run; on meta the same objects hold nothing and compute nothing, and the ledger and the
// stream's counts are those of the run: this is what `plan` asks. Weights are not set: init(), resume() of
// train/resume.h or a Hugging Face folder does that.
//
// Failure: UserError for data, folders and sizes; EnvironmentError when memory is not there.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "checkpoint/checkpoint_writer.h"
#include "spec/run_spec.h"
#include "tensor/memory.h"
#include "tensor/stream.h"
#include "train/replica.h"
#include "train/run_data.h"

namespace lockstep {

class TrainingRun {
 public:
  // On the device, which is the spec's own, or meta, which stands for it. `checkpoints` is where they are saved.
  TrainingRun(const RunSpec& spec, Device device, const std::filesystem::path& checkpoints);

  const RunSpec& spec() const { return spec_; }
  int threads() const { return threads_; }
  const Ledger& ledger() const { return ledger_; }
  Stream& stream() { return *stream_; }
  Replica& replica() { return *replica_; }
  const RunData& data() const { return data_; }

  void init_weights();  // from the seed, or from the Hugging Face folder the spec names

  // One step on the next global batch.
  Replica::Result step(const Progress& progress);
  // The mean loss over the evaluation batches.
  double evaluate();
  // Names the first bad value of the step that was run last.
  std::optional<std::string> find_bad_value() { return replica_->find_bad_value(tokens_, targets_); }

  // Saves where the run stands; returns when the live tensors may change again. wait_for_save() returns when it is on
  // the disk, and throws what went wrong there.
  void save(const Progress& progress);
  void wait_for_save();
  bool has_saved(std::int64_t step) const;  // this run's folder has that step

  std::int64_t tokens_a_step() const { return spec_.train.global_batch * spec_.data.seq; }

 private:
  RunSpec spec_;
  int threads_;
  Ledger ledger_;
  Ledger host_ledger_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Memory> host_memory_;  // of a GPU's run, for what is saved; none where the device is the host
  std::unique_ptr<Stream> stream_;
  RunData data_;
  std::unique_ptr<Replica> replica_;
  CheckpointFolder folder_;
  std::unique_ptr<CheckpointWriter> writer_;  // none: checkpoints are written before the run goes on
  std::vector<std::int32_t> tokens_, targets_;
};

int threads_of(const RunSpec& spec);    // as asked for, or the machine's cores
Device device_of(const RunSpec& spec);  // that it computes on

}  // namespace lockstep
