// Set-up: everything a run works with, made from its spec.
//
// On its own device it is the run; on meta the same objects hold nothing and compute nothing, and the ledger and the
// stream's counts are those of the run: this is what `plan` asks. Weights are not set: init(), resume() of
// train/resume.h or a Hugging Face folder does that.
//
// Failure: UserError for data, folders and sizes; EnvironmentError when memory is not there.
#pragma once
#include <filesystem>
#include <functional>
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
  // Makes the communicator of the same ranks as `hosts`, whose tensors are in the memory and computed on in the stream.
  using Connect = std::function<std::unique_ptr<Communicator>(Communicator& hosts, Memory&, Stream&)>;
  struct Where {
    std::int64_t arena_bytes = 0;   // of a GPU, taken at once (the plan's peak); 0: buffer by buffer
    Communicator* ranks = nullptr;  // of the ranks of the spec's layout, on the host; it outlives the run. None: alone
    Connect connect = {};           // the ranks on the device; none: that is where they are
    int threads = 0;                // of this rank; 0: threads_of(spec)
    const RunData* data = nullptr;  // that ranks of one process share, and rank 0 counts; it outlives the run
    bool counts_data = false;       // of `data`, as if it were this rank's own
    std::shared_ptr<const StepLists> lists = {};  // of actions, and the model, that another rank has (replica.h)
    std::shared_ptr<const Model> model = {};
  };
  // One rank of the run, on the device, which is the spec's own, or meta, which stands for it. `checkpoints` is where
  // they are saved, by all ranks, each its part: a folder that all of them see, which is made and looked for here
  // unless nothing is to be saved. All ranks make theirs at the same point.
  TrainingRun(const RunSpec& spec, Device device, const std::filesystem::path& checkpoints, const Where& where);
  TrainingRun(const RunSpec& spec, Device device, const std::filesystem::path& checkpoints)
      : TrainingRun(spec, device, checkpoints, Where{}) {}

  const RunSpec& spec() const { return spec_; }
  int threads() const { return threads_; }
  const Ledger& ledger() const { return ledger_; }
  const Ledger& host_ledger() const { return host_ledger_; }  // of a GPU's run: what it holds on the host
  Stream& stream() { return *stream_; }
  Replica& replica() { return *replica_; }
  const RunData& data() const { return *data_; }

  // Goes on with what another run chose by timing (train/tuning.h). Before the first step.
  void use_tuning(const TuningSpec& tuning);

  void init_weights();  // from the seed, or from the Hugging Face folder the spec names

  // One step on the global batch that begins with sample `first`, in two calls (replica.h): begun with this learning
  // rate, then waited for, the oldest first.
  void begin_step(std::int64_t first, double learning_rate);
  Replica::Result finish_step() { return replica_->finish_step(); }
  Replica::Result step(std::int64_t first, double learning_rate) {
    begin_step(first, learning_rate);
    return finish_step();
  }
  // Forward and backward of that batch alone; replica().apply_gradients() is the rest of the step.
  double compute_gradients(std::int64_t first, double learning_rate);
  // How many steps may be begun before the oldest of them is waited for: more than one where the stream runs ahead and
  // nobody watches.
  int steps_at_once() const { return stream_->runs_ahead() && spec_.run.trace == 0 ? Replica::kStepsInFlight : 1; }
  // The mean loss over the evaluation batches. All ranks call it.
  double evaluate();
  // Whether any rank says so. All ranks call it.
  bool any_rank(bool says);
  bool is_first_rank() const { return rank() == 0; }
  Communicator* ranks() const { return ranks_; }  // on the host; none: alone
  // Names the first bad value of a step that did not update, while no step is in flight.
  std::optional<std::string> find_bad_value(std::int64_t first);

  // Saves where the run stands; returns when the live tensors may change again. wait_for_save() returns when it is on
  // the disk, and throws what went wrong there, on whichever rank (checkpoint/together.h). All ranks call them.
  void save(const Progress& progress);
  void wait_for_save();
  bool has_saved(std::int64_t step);  // this run's folder has that step, as rank 0 sees it. All ranks call it.

  std::int64_t tokens_a_step() const { return spec_.train.global_batch * spec_.data.seq; }  // of all ranks

 private:
  int rank() const { return ranks_ ? ranks_->rank() : 0; }
  std::vector<StateTensor> written_here() const;

  RunSpec spec_;
  Communicator* ranks_;
  int threads_;
  Ledger ledger_;
  Ledger host_ledger_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Memory> host_memory_;  // of a GPU's run, for what is saved; none where the device is the host
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Communicator> on_device_;  // where that is not the host
  std::optional<RunData> own_data_;
  const RunData* data_;
  std::unique_ptr<Replica> replica_;
  CheckpointFolder folder_;
  std::unique_ptr<Communicator> savers_;      // the ranks once more, for what saves alone; none: alone
  std::unique_ptr<CheckpointWriter> writer_;  // none: checkpoints are written before the run goes on
  std::vector<std::int32_t> tokens_, targets_;
};

int threads_of(const RunSpec& spec);    // of a rank: as asked for, or its share of the machine's cores
Device device_of(const RunSpec& spec);  // that it computes on

}  // namespace lockstep
