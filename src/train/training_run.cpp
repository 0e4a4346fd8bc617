#include "train/training_run.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "checkpoint/all_or_none.h"
#include "checkpoint/checkpoint_model.h"
#include "checkpoint/find_checkpoint.h"
#include "checkpoint/finite.h"
#include "checkpoint/hf_folder.h"
#include "checkpoint/local_state.h"
#include "checkpoint/shared_folder.h"
#include "checkpoint/state_share.h"
#include "spec/layout/mesh_axis.h"
#include "spec/layout/updates.h"
#include "tensor/cuda/device.h"
#include "tensor/disk/file_memory.h"
#include "tensor/host_memory.h"
#include "tensor/make_stream.h"
#include "train/host_values.h"
#include "train/pinning.h"
#include "train/state_check.h"
#include "train/tuning.h"

namespace lockstep {

int threads_of(const RunSpec& spec) {
  if (spec.run.threads > 0) return static_cast<int>(spec.run.threads);
  return static_cast<int>(std::max<std::int64_t>(1, usable_cores() / spec.layout.ranks()));
}

Device device_of(const RunSpec& spec, int rank) {
  return spec.run.server_device == ServerDevice::cpu && spec.layout.serves(rank) ? Device::cpu : device_of(spec);
}
Device device_of(const RunSpec& spec) { return spec.run.device == RunDevice::cuda ? Device::cuda : Device::cpu; }

namespace {

TimeUse wait_along(MeshAxis axis) {
  constexpr TimeUse kWaits[] = {TimeUse::wait_dp, TimeUse::wait_pp, TimeUse::wait_cp, TimeUse::wait_tp};
  return kWaits[static_cast<int>(axis)];
}

Accounted::UseOf uses_of(const LayoutSpec& layout) {
  return [layout](const std::string& group) { return wait_along(axis_of(group, layout)); };
}

std::unique_ptr<Memory> make_offload_memory(const RunSpec& spec, Device device, Ledger& host, Ledger& disk) {
  switch (spec.memory.offloads_to()) {
    case Offload::none:
      return nullptr;
    case Offload::host:
      return make_host_memory(device, host);
    case Offload::disk:
      break;
  }
  if (device == Device::meta) return make_memory(Device::meta, disk);
  const std::filesystem::path folder = spec.memory.offload_folder.empty() ? spec.run.out : spec.memory.offload_folder;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw UserError(ExitCode::environment, fmt::format("{} cannot be made: {}", folder.string(), error.message()),
                    "name a folder on a disk of this host with memory.offload_folder");
  return std::make_unique<disk::FileMemory>(disk, folder);
}

// Both, which begin anew.
MessageCount taken(MessageCount& a, MessageCount& b) {
  const MessageCount both{a.calls + b.calls, a.bytes_sent + b.bytes_sent};
  a = b = {};
  return both;
}

}  // namespace

TrainingRun::TrainingRun(const RunSpec& spec, Device device, const std::filesystem::path& checkpoints,
                         const Where& where)
    : spec_(spec),
      raw_ranks_(where.ranks),
      mesh_(where.mesh ? std::make_unique<Accounted>(*where.mesh, comm_account_, uses_of(spec.layout)) : nullptr),
      traced_(where.ranks && device != Device::meta && spec.run.trace > 0
                  ? std::make_unique<Traced>(*where.ranks, messages_, "hosts")
                  : nullptr),
      accounted_(where.ranks && device != Device::meta
                     ? std::make_unique<Accounted>(traced_ ? static_cast<Communicator&>(*traced_) : *where.ranks,
                                                   comm_account_, uses_of(spec.layout))
                     : nullptr),
      ranks_(accounted_ ? accounted_.get() : where.ranks),
      threads_(where.threads > 0 ? where.threads : threads_of(spec)),
      memory_(make_memory(device, ledger_, where.arena_bytes)),
      host_memory_(device_of(spec, where.ranks ? where.ranks->rank() : 0) == Device::cpu
                       ? nullptr
                       : make_host_memory(device, host_ledger_)),
      offload_memory_(make_offload_memory(spec, device, host_ledger_, disk_ledger_)),
      rooms_memory_(device_of(spec) == Device::cuda && spec.memory.offloads_to() == Offload::disk
                        ? make_host_memory(device, host_ledger_)
                        : nullptr),
      stream_(make_stream(*memory_, threads_, device_of(spec, where.ranks ? where.ranks->rank() : 0))),
      stream_times_(device != Device::meta && stream_->runs_ahead()
                        ? std::make_unique<StreamTimes>(*stream_, Replica::kStepsInFlight)
                        : nullptr),
      stream_time_(stream_times_.get()),
      own_data_(where.data ? std::nullopt : std::make_optional<RunData>(spec)),
      data_(where.data ? where.data : &*own_data_),
      backup_(spec.train.backup.empty() || device == Device::meta || (where.ranks && where.ranks->rank() != 0)
                  ? nullptr
                  : std::make_unique<CheckpointBackup>(spec.train.backup)),
      folder_{.path = checkpoints,
              .keep = spec.train.keep,
              .companions = &companions_,
              .finite_weights = true,
              .whole = &whole_,
              .backup = backup_.get()} {
  const bool runs_ahead = stream_->runs_ahead() && spec.run.trace == 0;
  if (device != Device::meta) comm_account_.time = &time_;
  if (stream_times_) {
    CommAccount& of_stream = where.connect ? device_comm_account_ : comm_account_;
    of_stream.time = &stream_time_;
    of_stream.times_messages = false;
  }
  if (device == Device::cuda && spec.precision.compute == Precision::fp8) cuda::require_fp8();
  // An asynchronous step is over, with its one result, when begin_step() returns.
  steps_at_once_ = spec.sync.is_asynchronous()     ? 1
                   : where.steps_at_once > 0       ? where.steps_at_once
                   : runs_ahead || steps_overlap() ? Replica::kStepsInFlight
                                                   : 1;
  tune_products(spec, *stream_);
  const bool counts = own_data_ || where.data_of_rank || is_first_rank();
  const std::int64_t corpus = counts ? data_->corpus_bytes() : 0;
  if (corpus > 0) (host_memory_ ? host_ledger_ : ledger_).add(Tag::data, "corpus", corpus);
  const Replica::Options options{.spec = spec.model,
                                 .B = spec.train.global_batch,
                                 .T = spec.data.seq,
                                 .layout = spec.layout,
                                 .precision = spec.precision,
                                 .optimizer = spec.optimizer,
                                 .sync = spec.sync,
                                 .sparsity = spec.sparsity,
                                 .seed = spec.train.seed,
                                 .lists = where.lists,
                                 .model = where.model,
                                 .how = {.runs_on = device_of(spec, where.ranks ? where.ranks->rank() : 0),
                                         .deterministic = spec.train.deterministic,
                                         .memory = spec.memory,
                                         .documents = data_->documents(),
                                         .varlen = spec.data.documents == Documents::varlen,
                                         .lora = spec.lora},
                                 .halt_on_bad_value = spec.train.bad_values == BadValues::stop,
                                 .host_threads = threads_,
                                 .check_state = spec.run.check_state > 0,
                                 .account = stream_times_ ? &stream_time_ : account(),
                                 .times = stream_times_.get(),
                                 .workers_may_die = where.mesh != nullptr,
                                 .workers = where.workers};
  if (raw_ranks_ && where.connect) on_device_ = where.connect(*raw_ranks_, *memory_, *stream_);
  if (on_device_ && traced_) on_device_ = std::make_unique<Traced>(std::move(on_device_), messages_, "devices");
  if (on_device_ && accounted_)
    on_device_ = std::make_unique<Accounted>(
        std::move(on_device_), stream_times_ ? device_comm_account_ : comm_account_, uses_of(spec.layout));
  Communicator* const ranks_of_mesh = mesh_ ? mesh_.get() : ranks_;
  Communicator* const replicas = on_device_ ? on_device_.get() : ranks_of_mesh;
  replica_ = ranks_of_mesh
                 ? std::make_unique<Replica>(options, Replica::Ranks{*replicas, *ranks_of_mesh}, *memory_, *stream_,
                                             offload_memory_.get(), rooms_memory_.get())
                 : std::make_unique<Replica>(options, *memory_, *stream_, offload_memory_.get(), rooms_memory_.get());
  if (saves() && ranks_) {
    savers_ = raw_ranks_->split([](int r) { return Place{.color = 0, .key = r}; }, "checkpoint");
    if (device != Device::meta) check_shared(folder_, *savers_);
  }
  folder_.stream = stream_.get();
  if (saves() && spec.train.async_save) {
    replica_->open_state(true);
    writer_ = std::make_unique<CheckpointWriter>(
        folder_, written_here(), host_memory_ ? *host_memory_ : *memory_, Disk(), savers_.get(), RetryPauses{},
        spec.train.snapshot == SnapshotPlace::device ? memory_.get() : nullptr);
    replica_->close_state();
  }
  const Share given = replica_->given();
  if (replica_->is_asynchronous()) use_async();
  batch_ = std::make_unique<BatchReader>(
      device == Device::meta ? 0 : given.count * spec.data.seq,  // on meta batches are counted, and none is made
      [this, first_here = given.first](std::int64_t first, std::span<std::int32_t> tokens,
                                       std::span<std::int32_t> targets) {
        data_->training_batch(first + first_here, tokens, targets);
      });
}

void TrainingRun::use_tuning(const TuningSpec& tuning) {
  spec_.tuning = tuning;
  tune_products(spec_, *stream_);
}

void TrainingRun::init_weights(const std::function<void(const std::string&)>& note) {
  const bool meta = stream_->device() == Device::meta;
  if (spec_.lora) {
    replica_->init_weights(!has_base());
    return load_base(note);
  }
  if (!spec_.model_from.empty() && !meta) return init_from_checkpoint(note);
  // The plan of a run that is resumed may do without the folder that it started from.
  const bool folder_gone = meta && !std::filesystem::exists(std::filesystem::path(spec_.model_hf) / kHfConfigName);
  if (spec_.model_hf.empty() || folder_gone) {
    if (!spec_.data.tokenizer.empty() && is_first_rank() && saves() && !meta)
      keep_companions(read_tokenizer_companions(spec_.data.tokenizer));
    return replica_->init_weights();
  }
  const HfFolder folder(spec_.model_hf);
  const std::vector<LogicalTensor> names = logical_tensors(replica_->model());
  const std::vector<ConstTensor> values = folder.find(names);
  // Each rank checks some of the tensors, and no rank continues when one has found something.
  all_or_none(meta ? nullptr : ranks_, [&]() -> std::string {
    for (auto i = static_cast<std::size_t>(rank()); i < values.size(); i += static_cast<std::size_t>(size()))
      if (const auto bad = first_not_finite(values[i]))
        throw UserError(ExitCode::bad_input_file,
                        fmt::format("{}: tensor '{}' is not finite (element {} is {})", spec_.model_hf, names[i].name,
                                    bad->element, bad->value),
                        "fetch or export the model again");
    return "";
  });
  replica_->load(values);
  if (is_first_rank() && saves() && !meta) keep_companions(read_companions(spec_.model_hf));
}

// Rank 0 looks for the checkpoint and verifies it; the others open what it has found.
void TrainingRun::init_from_checkpoint(const std::function<void(const std::string&)>& note) {
  std::optional<Checkpoint> found;
  if (is_first_rank()) {
    found = require_checkpoint(spec_.model_from, [&](const std::filesystem::path& path, const std::string& reason) {
      if (note) note(fmt::format("skipping {}: {}", path.string(), reason));
    });
    require_same_model(*found, spec_.model);
    spec_.model_from = found->path().string();
  }
  if (ranks_) share_text(*ranks_, spec_.model_from, 0);
  if (!found) found = open_verified_checkpoint(spec_.model_from);
  std::vector<StateTensor> weights = replica_->state();
  std::erase_if(weights, [](const StateTensor& t) { return t.part != kWeightPart; });
  found->load(weights, *stream_);
  replica_->resume(0, 0);
  if (is_first_rank() && saves()) keep_companions(companions_of(*found));
}

// Which samples an asynchronous step has for this rank is not known before.
void TrainingRun::load_batch(std::int64_t first) {
  first_sample_ = first;
  if (!replica_->is_asynchronous()) batch_->load(first);
}

void TrainingRun::read_ahead(std::int64_t first) {
  if (!replica_->is_asynchronous()) batch_->read_ahead(first);
}

void TrainingRun::begin_loaded_step(double learning_rate) {
  const Spending computing(account(), TimeUse::compute);
  replica_->set_learning_rate(learning_rate);
  if (replica_->is_asynchronous()) return replica_->begin_step(first_sample_);
  replica_->begin_step(batch_->tokens(), batch_->targets());
}

Replica::Result TrainingRun::finish_step() {
  const Spending computing(account(), TimeUse::compute);
  Replica::Result result = replica_->finish_step();
  last_times_ = std::exchange(result.times, std::nullopt);
  if (spec_.layout.unflushed() && !result.updated) stages_differ_ = true;
  return result;
}

bool TrainingRun::drain() {
  const Spending computing(account(), TimeUse::compute);
  if (!replica_->drain()) stages_differ_ = true;
  if (telling_) telling_->pending->wait();  // all ranks are here
  return !stages_differ_;
}

std::optional<TimesByUse> TrainingRun::take_times() {
  if (!account()) return std::nullopt;
  const TimesByUse host = time_.take();
  if (!stream_times_) return host;
  if (!last_times_) return std::nullopt;
  TimesByUse times = last_times_->uses;
  double left = last_times_->idle;
  for (const TimeUse use : {TimeUse::save, TimeUse::evaluate, TimeUse::data}) {
    const double its = std::min(host[use], left);
    times[use] += its;
    left -= its;
  }
  times[TimeUse::other] += left;
  last_times_.reset();
  return times;
}

double TrainingRun::compute_gradients(std::int64_t first, double learning_rate) {
  batch_->load(first);
  replica_->set_learning_rate(learning_rate);
  return replica_->compute_gradients(batch_->tokens(), batch_->targets());
}

std::optional<std::string> TrainingRun::find_bad_value(std::int64_t first, std::int64_t later) {
  if (replica_->is_asynchronous()) return replica_->async().bad_value();
  batch_->load(first);
  return replica_->find_bad_value(batch_->tokens(), batch_->targets(), later);
}

TrainingRun::Evaluation TrainingRun::evaluate() {
  double total = 0, weighted = 0;
  std::int64_t likeliest = 0, targets = 0, batches = 0;
  bool alike = true;  // each batch has as many targets
  const auto add = [&](double loss, std::int64_t likeliest_here, std::int64_t counted) {
    total += loss;
    weighted += loss * static_cast<double>(counted);
    alike = alike && counted * batches == targets;
    likeliest += likeliest_here;
    targets += counted;
    ++batches;
  };
  if (mesh_)
    for (const BatchBuffers::Evaluated& batch : replica_->async().evaluate(spec_.train.eval_batches))
      add(batch.loss, batch.likeliest, batch.targets);
  for (std::int64_t i = 0; !mesh_ && i < spec_.train.eval_batches; ++i) {
    std::exception_ptr bad;
    try {
      if (!batch_->tokens().empty())
        data_->evaluation_batch(i * spec_.train.global_batch + replica_->given().first, batch_->tokens(),
                                batch_->targets());
    } catch (...) {
      bad = std::current_exception();
    }
    if (any_rank(bad != nullptr)) throw AgreedFailure(agreed(bad));
    const double loss = replica_->evaluate(batch_->tokens(), batch_->targets());
    add(loss, replica_->evaluated().likeliest, replica_->evaluated().targets);
  }
  // The mean over targets: that of batches, to the bit, where they have as many.
  Evaluation found{.loss = alike || targets == 0 ? total / static_cast<double>(spec_.train.eval_batches)
                                                 : weighted / static_cast<double>(targets),
                   .accuracy = {}};
  if (targets > 0) found.accuracy = static_cast<double>(likeliest) / static_cast<double>(targets);
  return found;
}

bool TrainingRun::any_rank(bool says) {
  std::int64_t sayers = says ? 1 : 0;
  if (ranks_) sum_over(*ranks_, sayers);
  return sayers > 0;
}

void TrainingRun::check_state(std::int64_t step) {
  const std::vector<StateHash> hashes = replica_->hash_state();
  if (!raw_ranks_) return;
  const auto found = compare_state(*raw_ranks_, replica_->state_hashes()->entries(), hashes, step);
  if (!found) return;
  const bool mine = found->blamed.empty() ? is_first_rank() : std::ranges::binary_search(found->blamed, rank());
  if (mine) throw EnvironmentError(found->text);
  throw CommError(found->text, true);
}

TimeUse TrainingRun::wait_in(const std::string& group) const { return uses_of(spec_.layout)(group); }

void TrainingRun::note_in(Doing& doing) {
  comm_account_.doing = device_comm_account_.doing = &doing;
  replica_->note_in(&doing);
}

void TrainingRun::pause_account(bool paused) {
  time_.pause(paused);
  stream_time_.pause(paused);
  comm_account_.paused = device_comm_account_.paused = paused;
  replica_->note_in(paused ? nullptr : comm_account_.doing);
}

std::vector<SentByAxis> TrainingRun::take_sent() {
  std::vector<SentByAxis> sent;
  for (const MeshAxis axis : kMeshAxes) {
    const auto use = static_cast<std::size_t>(wait_along(axis));
    const MessageCount count = taken(comm_account_.tensors[use], device_comm_account_.tensors[use]);
    sent.push_back({name_of(axis), count.calls, count.bytes_sent, comm_account_.under_way[use].take(), {}});
  }
  const MessageCount numbers = taken(comm_account_.numbers, device_comm_account_.numbers);
  sent.push_back({"numbers", numbers.calls, numbers.bytes_sent, 0, {}});
  return sent;
}

std::exception_ptr TrainingRun::agreed(const std::exception_ptr& mine) {
  try {
    all_or_none(ranks_, [&]() -> std::string {
      if (mine) std::rethrow_exception(mine);
      return "";
    });
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

// Ranks that hold copies of the same state share the work.
std::vector<StateTensor> TrainingRun::written_here() const {
  if (!ranks_ && !mesh_) return replica_->state();
  const LayoutSpec& layout = spec_.layout;
  const auto share = [](const std::vector<StateTensor>& state, std::int64_t copy, std::int64_t copies) {
    return share_of_state(state, static_cast<int>(copy), static_cast<int>(copies));
  };
  const std::int64_t copy = state_copy(layout, mesh_rank()), copies = state_copies(layout);
  std::vector<StateTensor> state = replica_->state(true);
  const std::int64_t groups = spec_.sync.groups(layout.dp), together = copies / groups;
  // What replicas that take local steps have of their own is the same in their group alone.
  const auto own =
      groups == 1 ? std::ranges::subrange(state.end(), state.end())
                  : std::ranges::stable_partition(state, [](const StateTensor& t) { return !is_local_part(t.part); });
  std::vector<StateTensor> all = share({state.begin(), own.begin()}, copy, copies);
  for (StateTensor& one : share({own.begin(), own.end()}, copy % together, together)) all.push_back(std::move(one));
  for (StateTensor& owed : replica_->owed(true)) all.push_back(std::move(owed));
  return all;
}

void TrainingRun::save(const Progress& progress) {
  if (stream_->device() != Device::meta) replica_->sum_owed();
  if (stream_->device() == Device::meta && !saves()) return;
  replica_->open_state(writer_ != nullptr);
  save_open(progress);
  replica_->close_state();
}

void TrainingRun::save_open(const Progress& progress) {
  if (writer_ && spec_.sparsity)
    return writer_->save(progress, written_here(), *stream_,
                         [this](const StateTensor& next) { replica_->turn_state_to(next.tensor.name); });
  if (writer_) {
    writer_->save(progress, *stream_);
    if (Event* const read = writer_->being_read()) replica_->update_after(*read);
    return;
  }
  if (stream_->device() == Device::meta) return;
  SaveResult result = try_save(folder_, progress, written_here(), Disk(), savers_.get());
  const bool told = result.outcome == SaveOutcome::failed && result.words == last_save_.words;
  if (!told) save_events_.push_back({progress.step, result.outcome, result.words});
  last_save_ = std::move(result);
}

SaveResult TrainingRun::finish_save(const Progress& progress, double seconds) {
  if (writer_) return writer_->wait(seconds);
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  const RetryPauses pauses;
  // Rank 0's clock counts.
  while (last_save_.outcome == SaveOutcome::failed && any_rank(is_first_rank() && Clock::now() < until)) {
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(pauses.first, seconds)));
    save(progress);
  }
  return last_save_;
}

std::vector<SaveEvent> TrainingRun::save_events() {
  return writer_ ? writer_->events() : std::exchange(save_events_, {});
}

bool TrainingRun::save_is_failing() { return writer_ ? writer_->failing() : last_save_.outcome == SaveOutcome::failed; }

void TrainingRun::wait_for_save() {
  const SaveResult result = writer_ ? writer_->wait() : last_save_;
  if (result.outcome != SaveOutcome::saved) std::rethrow_exception(result.error);
}

std::int64_t TrainingRun::newest_saved(std::int64_t step) const {
  if (folder_.path.empty()) return -1;
  std::int64_t newest = -1;
  try {
    for (const std::int64_t saved : steps_in(folder_.path))
      if (saved <= step) newest = saved;
  } catch (const EnvironmentError&) {  // a folder that cannot be read now has none to tell of
  }
  return newest;
}

bool TrainingRun::has_saved(std::int64_t step) {
  return any_rank(is_first_rank() && std::filesystem::exists(folder_.path / step_folder_name(step)));
}

}  // namespace lockstep
