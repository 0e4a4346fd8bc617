// What every rank of a training run writes of itself into the run folder: its step records, and what it is doing.
#pragma once
#include <mutex>
#include <optional>
#include <vector>

#include "telemetry/gpu_health.h"
#include "telemetry/heartbeat.h"
#include "telemetry/rank_records.h"
#include "telemetry/step_record.h"
#include "tensor/cuda/device.h"
#include "train/training_run.h"

namespace lockstep {

// Of one rank, from the step on that it begins or resumes at.
class RankLog {
 public:
  RankLog(const RunSpec& spec, int rank, std::int64_t first_step) {
    if (spec.run.record_every > 0)
      records_.emplace(spec.run.out, rank, RankRecordsOptions{.last_step = first_step, .every = spec.run.record_every});
  }
  // What the rank held after the step whose times come next.
  void held(const StepRecord& record) {
    if (records_ && records_->wants(record.step)) memory_ = {record.bytes, record.peak_bytes};
  }
  void timed(std::int64_t step, const TimesByUse& times, const std::vector<SentByAxis>& sent) {
    if (!records_ || !records_->wants(step)) return;
    const bool changed = memory_ != written_;
    records_->write(step, rank_json(step, times, sent, changed ? &memory_ : nullptr));
    if (changed) written_ = memory_;
  }

 private:
  std::optional<RankRecords> records_;
  HeldMemory memory_, written_;  // as it is, and in the last line that says so
};

// Of a process: begins with its first rank that trains.
class ProcessHeartbeat {
 public:
  void add(TrainingRun& run) {
    std::vector<std::string> names;
    for (const Action& action : run.replica().actions()) names.push_back(to_string(action));
    const std::lock_guard lock(mutex_);
    const bool gpu = run.stream().device() == Device::cuda;
    if (!heartbeat_) heartbeat_.emplace(run.spec().run.out, HeartbeatOptions{.nvml = gpu ? open_nvml() : std::nullopt});
    run.note_in(heartbeat_->add(run.mesh_rank(), std::move(names), gpu ? cuda::gpu_bus_id() : std::string()));
  }

 private:
  std::mutex mutex_;
  std::optional<Heartbeat> heartbeat_;
};

}  // namespace lockstep
