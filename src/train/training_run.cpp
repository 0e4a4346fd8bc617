#include "train/training_run.h"

#include <thread>

#include "checkpoint/hf_folder.h"
#include "tensor/make_stream.h"

namespace lockstep {

int threads_of(const RunSpec& spec) {
  if (spec.run.threads > 0) return static_cast<int>(spec.run.threads);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

Device device_of(const RunSpec& spec) { return spec.run.device == "cuda" ? Device::cuda : Device::cpu; }

TrainingRun::TrainingRun(const RunSpec& spec, Device device, const std::filesystem::path& checkpoints)
    : spec_(spec),
      threads_(threads_of(spec)),
      memory_(make_memory(device, ledger_)),
      host_memory_(device_of(spec) == Device::cpu
                       ? nullptr
                       : make_memory(device == Device::meta ? Device::meta : Device::cpu, host_ledger_)),
      stream_(make_stream(*memory_, threads_, device_of(spec))),
      data_(spec),
      folder_{.path = checkpoints, .keep = spec.train.keep} {
  if (data_.corpus_bytes() > 0) ledger_.add(Tag::data, "corpus", data_.corpus_bytes());
  replica_ = std::make_unique<Replica>(Replica::Options{.spec = spec.model,
                                                        .B = spec.train.global_batch,
                                                        .T = spec.data.seq,
                                                        .micro = static_cast<int>(spec.layout.micro),
                                                        .precision = spec.precision,
                                                        .optimizer = spec.optimizer,
                                                        .seed = spec.train.seed},
                                       *memory_, *stream_);
  // From a GPU everything that is saved goes through a copy on the host.
  if (spec.train.async_save || host_memory_)
    writer_ = std::make_unique<CheckpointWriter>(folder_, replica_->state(), host_memory_ ? *host_memory_ : *memory_);
  tokens_.resize(tokens_a_step());
  targets_.resize(tokens_a_step());
}

void TrainingRun::init_weights() {
  if (spec_.model_hf.empty()) return replica_->init_weights();
  std::vector<LogicalTensor> names;
  for (const Replica::Named& named : replica_->tensors()) names.push_back(named.tensor);
  const HfFolder folder(spec_.model_hf);
  replica_->load(folder.find(names));
}

Replica::Result TrainingRun::step(const Progress& progress) {
  data_.training_batch(progress.samples, tokens_, targets_);
  return replica_->step(tokens_, targets_);
}

double TrainingRun::evaluate() {
  double total = 0;
  for (std::int64_t i = 0; i < spec_.train.eval_batches; ++i) {
    data_.evaluation_batch(i, tokens_, targets_);
    total += replica_->evaluate(tokens_, targets_);
  }
  return total / static_cast<double>(spec_.train.eval_batches);
}

void TrainingRun::save(const Progress& progress) {
  if (writer_) {
    writer_->save(progress, *stream_);
    if (!spec_.train.async_save) writer_->wait();
    return;
  }
  if (stream_->device() != Device::meta) save_checkpoint(folder_, progress, replica_->state());
}

bool TrainingRun::has_saved(std::int64_t step) const {
  return std::filesystem::exists(folder_.path / step_folder_name(step));
}

void TrainingRun::wait_for_save() {
  if (writer_) writer_->wait();
}

}  // namespace lockstep
