// Any rank but the one that keeps the run folder's records: silent, but in a process of its own it hears signals too.
#pragma once
#include <atomic>
#include <filesystem>

#include "cli/rank_log.h"
#include "cli/signals.h"
#include "telemetry/event_log.h"
#include "train/loop.h"

namespace lockstep {

class SilentRank final : public Watcher {
 public:
  SilentRank(const TrainingRun& run, std::int64_t first_step, bool own_process)
      : stop_(own_process ? &listen_for_signals(run.spec().run.stop_signals) : nullptr),
        events_(std::filesystem::path(run.spec().run.out) / "events.jsonl"),
        rank_(static_cast<std::size_t>(run.ranks()->rank())),
        log_(run.spec(), run.mesh_rank(), first_step) {}
  bool wants_stop() override { return stop_ && *stop_; }
  void stepped(const StepRecord& record) override { log_.held(record); }
  void timed(std::int64_t step, const std::vector<TimesByUse>& times, const std::vector<SentByAxis>& sent) override {
    log_.timed(step, times[rank_], sent);
  }
  void happened(const LoggedEvent& fault) override { append_event(events_, fault); }

 private:
  const std::atomic<bool>* stop_;
  std::filesystem::path events_;
  std::size_t rank_;
  RankLog log_;
};

}  // namespace lockstep
