// Set-up: everything a run works with, made from its spec.
//
// On its own device it is the run. On meta the same objects hold nothing and compute nothing, and the ledger and the
// stream's counts equal the run's: this is what `plan` asks. Weights are not set: call init_weights(), or resume() of
// train/resume.h.
//
// Failure: UserError for data, folders and sizes; EnvironmentError when memory is not there.
#pragma once
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "checkpoint/backup.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/state_copy.h"
#include "comm/accounted.h"
#include "comm/traced.h"
#include "spec/run/run_spec.h"
#include "telemetry/event_log.h"
#include "telemetry/step_record.h"
#include "tensor/memory.h"
#include "tensor/stream.h"
#include "train/batch_reader.h"
#include "train/replica.h"
#include "train/run_data.h"

namespace lockstep {

// Something that ends a run between two steps, and that all ranks know of: the state is good and can be saved first.
struct AgreedFailure : std::runtime_error {
  explicit AgreedFailure(std::exception_ptr why_)
      : std::runtime_error("a failure of all ranks"), why(std::move(why_)) {}
  std::exception_ptr why;  // what this rank is to throw in the end
};

// Where copies of the state in memory go (checkpoint/state_copy.h).
struct CopyPlace {
  std::filesystem::path folder;    // of this rank's host, which its agent has made
  std::int64_t resumed = 0;        // the step of the copy there that the run resumes from; 0: from none
  std::int64_t room = 0;           // bytes of memory that this rank may take, for what it computes with and copies
  std::int64_t every = kCopyAuto;  // steps between copies, where an earlier try in the same layout has measured them
};

class TrainingRun {
 public:
  // Makes the communicator of the same ranks as `hosts`, whose tensors are in the memory and computed on in the stream.
  using Connect = std::function<std::unique_ptr<Communicator>(Communicator& hosts, Memory&, Stream&)>;
  struct Where {
    std::int64_t arena_bytes = 0;   // of a GPU, taken at once (the plan's peak); 0: buffer by buffer
    Communicator* ranks = nullptr;  // of the ranks of the spec's layout, on the host; it outlives the run. None: alone
    // Of a run whose workers may die (comm/apart/ranks.h): `ranks` are then this rank's party, none where it is alone
    // in it, these all of the layout, and of a server its connections to workers. They outlive the run.
    Communicator* mesh = nullptr;
    apart::WorkerLinks* workers = nullptr;
    Connect connect = {};           // the ranks on the device; none: that is where they are
    int threads = 0;                // of this rank; 0: threads_of(spec)
    const RunData* data = nullptr;  // that ranks of one process share, and rank 0 counts; it outlives the run
    bool data_of_rank = false;      // `data` is this rank's alone, which counts it, whichever it is
    int steps_at_once = 0;          // 0: more than one where the stream runs ahead and nobody watches
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
  const Ledger& disk_ledger() const { return disk_ledger_; }  // of state that is offloaded to a disk
  Stream& stream() { return *stream_; }
  Replica& replica() { return *replica_; }
  // Of the next step, as checkpoints keep it; none: it is not dynamic.
  std::optional<LossScaleState> loss_scale() const {
    if (spec_.precision.loss_scale.kind != LossScale::Kind::dynamic) return std::nullopt;
    return replica_->loss_scale();
  }
  const RunData& data() const { return *data_; }

  // Continues with what another run chose by timing (train/tuning.h). Before the first step.
  void use_tuning(const TuningSpec& tuning);

  // From the seed, or from the Hugging Face folder or the checkpoint that the spec names. Imported weights must be
  // finite: UserError (bad_input_file) naming the tensor. All ranks call it. A run that names another run takes its
  // newest whole checkpoint, and its spec says from then on which that was; `note` is called for damaged ones that were
  // skipped. On meta no checkpoint is opened.
  void init_weights(const std::function<void(const std::string&)>& note = {});
  // Of a run with LoRA: the frozen weights alone, of that folder or checkpoint, whose fingerprint the spec has from
  // then on; UserError (usage) where it had another. Nothing where they are there, or random. What init_weights() does
  // too.
  void load_base(const std::function<void(const std::string&)>& note = {});
  // What came with the model, for the checkpoints of this run. Rank 0's; before the first save.
  void keep_companions(std::vector<HfCompanion> companions) { companions_ = std::move(companions); }

  // One step on the global batch that begins with sample `first`, in two calls (replica.h): begun with this learning
  // rate, then waited for, the oldest first.
  // begin_step reads the batch first; or load_batch does, so that data that cannot be read is known before the step.
  void load_batch(std::int64_t first);
  void read_ahead(std::int64_t first);  // the batch that load_batch will be asked for next, beside the step
  void begin_loaded_step(double learning_rate);
  void begin_step(std::int64_t first, double learning_rate) {
    load_batch(first);
    begin_loaded_step(learning_rate);
  }
  Replica::Result finish_step();
  Replica::Result step(std::int64_t first, double learning_rate) {
    begin_step(first, learning_rate);
    return finish_step();
  }
  // Forward and backward of that batch alone; replica().apply_gradients() is the rest of the step.
  double compute_gradients(std::int64_t first, double learning_rate);
  // How many steps may be begun before the oldest of them is waited for.
  int steps_at_once() const { return steps_at_once_; }
  // Whether all ranks agree on the weights after this many steps: then they can be saved and evaluated. Those of an
  // asynchronous run do where they meet (async_steps.h), which is known when the step has ended. They do not where a
  // stage of a pipeline without a flush has found a value that is not finite: others have made updates that it has not.
  bool agrees_after(std::int64_t step) const {
    if (replica_->is_asynchronous()) return replica_->async().met();
    return spec_.sync.agrees_after(step) && !stages_differ_;
  }
  // Makes the state whole where steps overlap, before it is saved or evaluated (replica.h); false: it cannot be.
  bool drain();
  // Over the evaluation batches: the mean loss, and the share of next tokens that no other token had a larger logit
  // than (nothing when no target counts). All ranks call it. AgreedFailure when the data of any rank cannot be read.
  struct Evaluation {
    double loss = 0;
    std::optional<double> accuracy;
  };
  Evaluation evaluate();
  // Where workers may die: a worker computes until the run is over, and says when it wants it to stop; the servers let
  // the workers go when it is.
  void serve(const std::function<bool()>& wants_stop) { replica_->async().serve(wants_stop); }
  void dismiss_workers() { replica_->async().dismiss(); }
  // Whether any rank says so. All ranks call it.
  bool any_rank(bool says);
  // With run.check_state: hashes the state, and compares what several ranks hold alike (train/state_check.h). Where it
  // differs, or has changed by itself, the ranks to blame throw EnvironmentError, with a text that begins with the
  // first of them, and all others CommError; where nobody is to blame, rank 0 does. All ranks call it, no step being in
  // flight.
  bool checks_state() const { return replica_->state_hashes() != nullptr; }
  void check_state(std::int64_t step);
  // What some rank wishes, before a step. All ranks call tell_ranks().
  struct Wishes {
    bool stop = false;        // somebody asked for the end
    bool bad_data = false;    // its part of the next batch cannot be read
    bool save_again = false;  // a save that has failed is to be tried again
    bool compare_clocks = false;
    bool copy = false;  // of the state, into memory, before the step
  };
  // And where the time of each went, and what happened. One message, which the account of messages leaves out. Ranks
  // that do not meet hear of themselves alone; a wish to stop makes them meet.
  struct Told {
    Wishes any;
    std::vector<TimesByUse> times;   // by rank
    std::vector<ToldEvents> events;  // likewise
  };
  // Where steps overlap, what is returned was told one call earlier, and nobody waits for the ranks that are still at
  // the step (tells_late()): wishes come true a step later, and a rank without its data cannot ask others to wait.
  Told tell_ranks(const Wishes& mine, const TimesByUse& times, const ToldEvents& events = {});
  bool tells_late() const;
  bool steps_overlap() const { return spec_.layout.unflushed(); }
  // This rank's time on the host; none on meta.
  TimeAccount* account() { return stream_->device() == Device::meta ? nullptr : &time_; }
  // Where the time of the step that was finished last went, to be asked once after each; nothing where that was not
  // measured. Where the stream runs ahead the times are the stream's, and what it was idle between two steps is what
  // the host did meanwhile: saving, evaluating, reading data.
  std::optional<TimesByUse> take_times();
  // Says from now on what this rank is doing (telemetry/heartbeat.h). It outlives the run.
  void note_in(Doing& doing);
  Doing* doing() { return comm_account_.doing; }
  // While the account is paused, steps are as without one: what it costs is measured by that. Between steps.
  void pause_account(bool paused);
  // Messages since it was last asked.
  std::vector<SentByAxis> take_sent();
  // All ranks call it when any of them has a failure: what each is to throw, in the end, its own or one that names the
  // rank that has one.
  std::exception_ptr agreed(const std::exception_ptr& mine);
  bool is_first_rank() const { return rank() == 0; }
  Communicator* ranks() const { return ranks_; }  // on the host; none: alone
  // Of the layout, where ranks() are those of one party of it (Where::mesh).
  int mesh_rank() const { return mesh_ ? mesh_->rank() : rank(); }
  // The same, outside the account of messages and the trace: for what is told beside a step.
  Communicator* uncounted_ranks() const { return raw_ranks_; }
  MessageTrace& messages() { return messages_; }  // of a run with a trace
  // Names the first bad value of a step that did not update, while no step is in flight.
  // first: of its batch; later: steps that were finished since.
  std::optional<std::string> find_bad_value(std::int64_t first, std::int64_t later);

  // Saves the run's state; the next step may follow at once. save_events() reports the result: a save
  // that fails is tried again from its snapshot while the run continues (checkpoint/checkpoint_writer.h); where there
  // is no snapshot, retries_need_the_run(), the run saves its newer state some steps later. finish_save() tries for
  // this many seconds more, and returns the result of the last save, which was of `progress`; wait_for_save() is
  // finish_save() without patience, and throws what went wrong, on whichever rank (checkpoint/all_or_none.h). All ranks
  // call them, but save_events() and save_is_failing().
  void save(const Progress& progress);
  SaveResult finish_save(const Progress& progress, double seconds);
  void wait_for_save();
  std::vector<SaveEvent> save_events();
  std::optional<std::string> backup_problem() { return backup_ ? backup_->problem() : std::nullopt; }
  bool save_is_failing();
  bool retries_need_the_run() const { return !writer_; }
  const std::filesystem::path& checkpoints() const { return folder_.path; }
  // The newest step of this run's folder up to that one, as this rank sees it now; -1: none.
  std::int64_t newest_saved(std::int64_t step) const;
  bool has_saved(std::int64_t step);  // this run's folder has that step, as rank 0 sees it. All ranks call it.

  // Copies of the state into memory. Begins them, unless there is no room for them on some rank: then it says why, in
  // one line. copy() returns when the live tensors may change, and settle_copy() when the copy is complete on all
  // hosts, or has failed; end_copies() gives their memory back. All ranks call them.
  std::string begin_copies(const CopyPlace& place);
  void copy(const Progress& progress);
  SaveResult settle_copy();
  void end_copies();
  void use_copy_every(std::int64_t every) { spec_.train.copy_every = every; }
  // What they take, by the ranks of this rank's kind.
  CopyBytes copy_bytes() const { return lockstep::copy_bytes(written_here()); }

  std::int64_t tokens_a_step() const { return data_->tokens_of(spec_.train.global_batch); }  // of all ranks

 private:
  int rank() const { return ranks_ ? ranks_->rank() : 0; }
  bool saves() const { return spec_.train.save_last || spec_.train.save_every > 0; }
  void init_from_checkpoint(const std::function<void(const std::string&)>& note);
  bool has_base() const { return spec_.lora && !(spec_.model_hf.empty() && spec_.model_from.empty()); }
  int size() const { return ranks_ ? ranks_->size() : 1; }
  std::vector<StateTensor> written_here() const;
  void save_open(const Progress& progress);
  void use_async();

  RunSpec spec_;
  TimeAccount time_;
  CommAccount comm_account_;         // of messages on the host, or of all where the ranks are one communicator
  CommAccount device_comm_account_;  // of messages on the device, where that is another
  MessageTrace messages_;
  Communicator* const raw_ranks_;         // as given
  std::unique_ptr<Communicator> mesh_;    // none: ranks_ are all
  std::unique_ptr<Traced> traced_;        // the same, where the run has a trace
  std::unique_ptr<Accounted> accounted_;  // the same, accounted for
  Communicator* ranks_;
  int threads_;
  int steps_at_once_ = 1;
  Ledger ledger_;
  Ledger host_ledger_, disk_ledger_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Memory> host_memory_;     // of a GPU's run, for what is saved; none where the device is the host
  std::unique_ptr<Memory> offload_memory_;  // of offloaded state; none: nothing is
  std::unique_ptr<Memory> rooms_memory_;    // on the host, between a disk and a GPU
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<StreamTimes> stream_times_;  // where the stream runs ahead
  TimeAccount stream_time_;                    // that marks them
  std::optional<StreamStep> last_times_;
  std::unique_ptr<Communicator> on_device_;  // where that is not the host
  std::optional<RunData> own_data_;
  const RunData* data_;
  std::unique_ptr<Replica> replica_;
  std::vector<HfCompanion> companions_;
  bool base_is_there_ = false;
  WholeCheckpoints whole_;
  std::unique_ptr<CheckpointBackup> backup_;  // rank 0's; none: there is no second folder
  CheckpointFolder folder_;
  std::unique_ptr<Communicator> savers_;      // the ranks once more, for what saves alone; none: alone
  std::unique_ptr<CheckpointWriter> writer_;  // none: checkpoints are written before the run continues
  SaveResult last_save_;                      // of those
  std::vector<SaveEvent> save_events_;
  CopyGenerations copies_;
  CheckpointFolder copy_folder_;
  std::unique_ptr<Communicator> copiers_;  // the ranks once more, for copies alone; none: alone, or no copies
  std::unique_ptr<CheckpointWriter> copy_writer_;
  std::unique_ptr<BatchReader> batch_;  // of this rank
  std::int64_t first_sample_ = 0;       // of the next asynchronous step
  struct Telling {
    std::vector<double> own, all;
    Communicator::Started pending;
  };
  TimeUse wait_in(const std::string& group) const;  // for messages of that group
  Telling begin_telling(const Wishes& mine, const TimesByUse& times, const ToldEvents& events);
  Told end_telling(Telling& telling);

  std::int64_t tellings_ = 0;
  std::optional<Telling> telling_;  // of the last call, where steps overlap
  bool stages_differ_ = false;
};

int threads_of(const RunSpec& spec);              // per rank: as asked for, or its share of the machine's cores
Device device_of(const RunSpec& spec);            // that it computes on
Device device_of(const RunSpec& spec, int rank);  // this rank: servers may be elsewhere

}  // namespace lockstep
