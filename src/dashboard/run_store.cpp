#include "dashboard/run_store.h"

#include <algorithm>
#include <atomic>
#include <optional>

#include "base/error.h"
#include "dashboard/found_runs.h"

namespace lockstep {

namespace {
namespace fs = std::filesystem;
using StoreClock = std::chrono::steady_clock;
constexpr std::chrono::seconds kFreshList{2}, kFreshRun{1};
}  // namespace

struct RunStore::Entry {
  explicit Entry(FoundRun found) : run(std::move(found)), shown{.name = run.name} {}

  // Under `mutex`. False: it cannot be read, and the summary says why.
  bool refresh() {
    if (reader && StoreClock::now() - read_at < kFreshRun) return true;
    const std::int64_t lines = reader ? reader->records().step_lines : 0;
    RunSummary summary{.name = run.name};
    summary.problem = unreadable_file(run.folder);
    try {
      if (summary.problem.empty()) {
        if (!reader) reader.emplace(run.folder);
        summary = summarize(run.name, reader->update());
      }
    } catch (const std::exception& error) {
      summary.problem = error.what();
    }
    show(summary);
    if (!summary.problem.empty()) {
      give_up();
      return false;
    }
    read_at = StoreClock::now();
    steps = reader->records().steps.size();
    if (reader->records().step_lines != lines) touch();
    return true;
  }
  // Under `mutex`.
  void give_up() {
    reader.reset();
    steps = 0;
    left_at = written();
  }
  // Whether there is nothing that the summary does not say. Under `mutex`.
  bool unchanged_since_given_up() const { return !reader && left_at != fs::file_time_type{} && left_at == written(); }

  void show(const RunSummary& summary) {
    const std::lock_guard lock(shown_mutex);
    shown = summary;
  }
  RunSummary summary() {
    const std::lock_guard lock(shown_mutex);
    return shown;
  }
  void touch() { used = StoreClock::now().time_since_epoch().count(); }

  const FoundRun run;
  std::mutex mutex;
  std::optional<RunReader> reader;
  StoreClock::time_point read_at{};
  fs::file_time_type left_at{};  // of metrics.jsonl, when the records were given up

  std::atomic<std::size_t> steps{0};               // held
  std::atomic<StoreClock::duration::rep> used{0};  // when it was last asked for, or grew

 private:
  fs::file_time_type written() const {
    std::error_code error;
    const fs::file_time_type time = fs::last_write_time(run.folder / "metrics.jsonl", error);
    return error ? fs::file_time_type{} : time;
  }

  std::mutex shown_mutex;
  RunSummary shown;
};

RunStore::RunStore(fs::path root) : root_(std::move(root)) {}
RunStore::~RunStore() = default;

void RunStore::look_for_runs() {
  if (StoreClock::now() - listed_ < kFreshList && listed_ != StoreClock::time_point{}) return;
  std::map<std::string, std::shared_ptr<Entry>> now;
  for (const FoundRun& run : find_runs(root_)) {
    const auto before = entries_.find(run.name);
    now.emplace(run.name, before != entries_.end() ? before->second : std::make_shared<Entry>(run));
  }
  entries_ = std::move(now);
  listed_ = StoreClock::now();
}

std::shared_ptr<RunStore::Entry> RunStore::find(const std::string& name) {
  const std::lock_guard lock(mutex_);
  look_for_runs();
  const auto found = entries_.find(name);
  if (found == entries_.end()) return nullptr;
  found->second->touch();
  return found->second;
}

void RunStore::give_up_old(const Entry* in_use) {
  std::vector<std::pair<StoreClock::duration::rep, std::shared_ptr<Entry>>> by_age;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, entry] : entries_) by_age.emplace_back(entry->used, entry);
  }
  std::ranges::sort(by_age, std::greater<>());
  std::size_t held = 0;
  for (const auto& [used, entry] : by_age) {
    held += entry->steps;
    if (held <= kMostHeldSteps || entry.get() == in_use) continue;
    if (const std::unique_lock theirs(entry->mutex, std::try_to_lock); theirs && entry->reader) entry->give_up();
  }
}

std::vector<RunSummary> RunStore::summaries(std::chrono::milliseconds budget) {
  std::vector<std::shared_ptr<Entry>> all;
  {
    const std::lock_guard lock(mutex_);
    look_for_runs();
    for (const auto& [name, entry] : entries_) all.push_back(entry);
  }
  const StoreClock::time_point until = StoreClock::now() + budget;
  std::vector<RunSummary> found;
  for (const std::shared_ptr<Entry>& entry : all) {
    // Where somebody else reads it at this moment, what was last known is told.
    if (const std::unique_lock lock(entry->mutex, std::try_to_lock);
        lock && StoreClock::now() < until && !entry->unchanged_since_given_up())
      entry->refresh();
    found.push_back(entry->summary());
  }
  give_up_old(nullptr);
  return found;
}

bool RunStore::with(const std::string& name, const std::function<void(const RunRecords&)>& look) {
  const std::shared_ptr<Entry> entry = find(name);
  if (!entry) return false;
  {
    const std::lock_guard lock(entry->mutex);
    if (!entry->refresh()) return false;
    look(entry->reader->records());
  }
  give_up_old(entry.get());
  return true;
}

bool RunStore::with_trace(const std::string& name,
                          const std::function<void(const RunRecords&, const ShownTrace&)>& look) {
  return with(name, [&](const RunRecords& run) {
    const std::lock_guard lock(trace_mutex_);
    const fs::path file = run.folder / "trace.json";
    std::error_code error;
    const fs::file_time_type written = fs::last_write_time(file, error);
    if (error) {
      look(run, {.trace = {}, .problem = "the run has no trace: train with --set run.trace=N"});
      return;
    }
    if (file != trace_file_ || written != trace_written_) {
      trace_ = {};
      trace_file_ = file;
      trace_written_ = written;
      try {
        if (fs::file_size(file) > kMostShownTrace)
          trace_.problem = "the trace is too large for this page: open trace.json in Perfetto";
        else
          trace_.trace = read_trace(file);
      } catch (const std::exception& failure) {
        trace_.problem = failure.what();
      }
    }
    look(run, trace_);
  });
}

}  // namespace lockstep
