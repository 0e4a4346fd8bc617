// The runs below a folder, each read at most once a second and only as far as its files have grown.
//
// What is held is bounded: of the runs that were asked for longest ago the records are given up, so that at most
// kMostHeldSteps steps of all runs together are in memory (some 180 bytes each), besides the one in use; their
// summaries stay. Used by several threads at once; a slow first read of one run does not hold up the others.
#pragma once
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dashboard/run_summary.h"
#include "telemetry/run_reader.h"
#include "telemetry/trace.h"

namespace lockstep {

inline constexpr std::size_t kMostHeldSteps = 4'000'000;
// Larger ones are for Perfetto: a trace is held whole while it is looked at.
inline constexpr std::uintmax_t kMostShownTrace = std::uintmax_t{256} << 20;

struct ShownTrace {
  Trace trace;
  std::string problem;  // why there is none; empty: there is
};

class RunStore {
 public:
  explicit RunStore(std::filesystem::path root);
  ~RunStore();

  // In the order of names. Runs that are not read yet are read until `budget` is spent; the rest say "reading".
  std::vector<RunSummary> summaries(std::chrono::milliseconds budget);

  // Calls `look` with what the run has written; false: there is no such run, or it cannot be read. The records are
  // valid, and change for nobody, until `look` returns.
  bool with(const std::string& name, const std::function<void(const RunRecords&)>& look);
  // The same for trace.json, of which one at a time is held.
  bool with_trace(const std::string& name, const std::function<void(const RunRecords&, const ShownTrace&)>& look);

 private:
  struct Entry;
  std::shared_ptr<Entry> find(const std::string& name);
  void look_for_runs();
  void give_up_old(const Entry* in_use);

  std::filesystem::path root_;
  std::mutex mutex_;  // of the list
  std::map<std::string, std::shared_ptr<Entry>> entries_;
  std::chrono::steady_clock::time_point listed_{};

  std::mutex trace_mutex_;
  std::filesystem::path trace_file_;
  std::filesystem::file_time_type trace_written_{};
  ShownTrace trace_;
};

}  // namespace lockstep
