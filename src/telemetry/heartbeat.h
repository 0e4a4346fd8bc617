// What the ranks of this process are doing at the moment, on disk once a second, also while a rank is held in a call
// forever.
//
//   Heartbeat heartbeat(run_folder);
//   Doing& doing = heartbeat.add(rank, names_of_actions);   // in the rank's thread, which then stores into it
//   doing.begin_step(7);
//   doing.begin_action(12);
//   InCall call(&doing, "dp", "all_reduce", 41);
//
// One thread reads every rank's Doing and replaces its file RUN/ranks/rank-00007.now (rank_now.h), written beside and
// renamed, so that a reader sees a whole file. It also keeps how long each rank usually is in each action, and when it
// last moved, which stalls.h judges by. A write that fails is ignored: the next one is a second later. A rank
// that has ended is written once more, then its file is left alone, since another process may have become that rank.
//
// The destructor stops the thread at once and writes "ended" for every rank that has not said so itself. It waits only
// for a write that the disk is busy with. Ranks no longer store by then.
//
// add() may be called by any thread. Construction: EnvironmentError when RUN/ranks cannot be made; nothing throws later
// but add(), ProgramError for a rank out of range.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "telemetry/doing.h"
#include "telemetry/gpu_health.h"
#include "telemetry/host_health.h"
#include "telemetry/rank_now.h"

namespace lockstep {

struct HeartbeatOptions {
  std::chrono::nanoseconds period = std::chrono::seconds(1);
  std::optional<NvmlFunctions> nvml = {};  // what is asked about GPUs; nothing: nobody is
};

class Heartbeat {
 public:
  explicit Heartbeat(std::filesystem::path run_folder, const HeartbeatOptions& options = {});
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // A rank of this process and the names of its actions, by index; the Doing lives as long as this. A rank that is
  // added again, by its own thread, has the same Doing, between steps, and the new names. `gpu` is the bus id of its
  // GPU (gpu_health.h); empty: it has none.
  Doing& add(int rank, std::vector<std::string> actions, const std::string& gpu = "");

 private:
  struct Rank {
    int number;
    std::vector<std::string> actions;
    Doing doing;
    std::unique_ptr<RecentDurations> durations;  // that its Doing keeps
    std::uint64_t stores = 0;                    // into its Doing, when it was last looked at
    std::int64_t moved = 0;                      // when there were new ones; steady nanoseconds
    bool end_written = false;                    // or about to be
    std::int64_t thread = 0;
    RankCpu cpu_before;          // when it was added
    std::optional<RankCpu> cpu;  // since then, when it was last known
    std::optional<GpuHealth> gpu;
    std::int64_t gpu_asked = 0;  // steady nanoseconds
  };

  struct File {
    Rank* rank;
    std::filesystem::path path;
    std::string text;
  };

  void run();
  RankNow now_of(Rank& rank, const DoingState& state) const;
  std::vector<File> files(bool ending);  // as they would be now; `ending`: all ranks have ended
  void write_files(bool ending) noexcept;

  const std::filesystem::path run_folder_;
  const std::chrono::nanoseconds period_;
  const std::string host_;
  const std::optional<NvmlFunctions> nvml_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  std::deque<Rank> ranks_;            // by mutex_, but for what a Doing's own thread stores
  bool stop_ = false;                 // by mutex_
  std::optional<RankMemory> memory_;  // when it was nearest to its limit; by mutex_
  MemorySwing swing_;                 // by mutex_
  std::thread thread_;
};

}  // namespace lockstep
