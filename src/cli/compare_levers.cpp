#include "cli/compare_levers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "bench/comm_bench.h"
#include "bench/disk_bench.h"
#include "bench/host_link_bench.h"
#include "cli/byte_size.h"
#include "cli/progress_line.h"
#include "cli/signals.h"
#include "cli/start_ranks.h"
#include "cli/usage_error.h"
#include "spec/text/text_input.h"
#include "train/pinning.h"
#include "train/training_run.h"

namespace lockstep {

namespace {

constexpr std::int64_t kMeasuredBytes = std::int64_t{256} << 20;

// All-reduces as large as a bucket, of as many thread ranks as the layout has.
double measure_messages(int ranks, const std::atomic<bool>& stop) {
  double rate = 0;
  const CommBenchOptions options =
      settle({.algorithms = {Algorithm::canonical}, .ranks = {ranks}, .sizes = {16 << 20}, .seconds = 0.3}, 0);
  run_comm_bench(options, nullptr, stop,
                 [&](const CommBenchRow& row) { rate = static_cast<double>(row.sent) / row.seconds; });
  return rate;
}

std::filesystem::path offload_folder_of(const RunSpec& run) {
  const std::filesystem::path folder = run.memory.offload_folder.empty() ? run.run.out : run.memory.offload_folder;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw UserError(ExitCode::environment, fmt::format("{} cannot be made: {}", folder.string(), error.message()),
                    "name a folder on a disk of this host with --set memory.offload_folder, or another --set run.out");
  return folder;
}

LeverCeilings measure_ceilings(const RunSpec& run, const std::atomic<bool>& stop) {
  LeverCeilings ceilings;
  if (device_of(run) == Device::cuda) {
    ceilings.host = measure_host_link(Device::cuda, kMeasuredBytes).both;
    return ceilings;
  }
  const std::filesystem::path folder = offload_folder_of(run);
  if (available_disk(run) >= 2 * kMeasuredBytes)
    ceilings.disk = measure_disk_both_ways({.folder = folder, .bytes = kMeasuredBytes, .rounds = 3});
  if (run.layout.ranks() > 1) ceilings.messages = measure_messages(static_cast<int>(run.layout.ranks()), stop);
  return ceilings;
}

std::int64_t allowed_memory(const CompareSettings& s) {
  if (s.memory.empty()) return 0;
  const std::optional<std::int64_t> bytes = parse_byte_size(s.memory);
  if (!bytes || *bytes == 0) refuse("--memory " + quote_text(s.memory), "give a size as in 24GiB or 512MiB");
  return *bytes;
}

}  // namespace

void refuse_growing_mask(const RunSpec& run) {
  if (run.sparsity)
    refuse(
        fmt::format("sparsity.kind = \"{}\": masks grow over more steps than are compared", name_of(run.sparsity.kind)),
        "use --set sparsity.kind=none");
}

int compare_levers_of(const CompareSettings& s) {
  if (launched_as_one_of_many())
    refuse("--levers under a launcher: it compares ranks that are threads of one process", "start without one");
  const std::int64_t memory = allowed_memory(s);
  const RunSpec run = s.run.read();
  refuse_growing_mask(run);
  if (run.layout.ranks() > kMostComparedThreads)
    refuse(fmt::format("--levers: the layout has {} ranks, and one process has at most {}", run.layout.ranks(),
                       kMostComparedThreads),
           "use fewer ranks here; `lockstep plan` says what more of them cost");
  const EmptyFolderRemoved out(run.run.out);
  const std::atomic<bool>& stop = listen_for_signals();
  ComparisonOptions options{.steps = s.steps, .rounds = std::min(s.steps, ComparisonOptions{}.rounds)};
  options.memory = memory;
  options.wants_stop = [&] { return stop.load(); };
  const LeversShown shown{.ceilings = measure_ceilings(run, stop),
                          .memory = memory,
                          .steps = s.steps,
                          .cores = usable_cores(),
                          .markdown = s.markdown};
  LeverComparison comparison;
  {
    ProgressLine progress(usual_levers(run).size() * static_cast<std::size_t>(options.rounds), true);
    comparison = compare_levers(run, options, [&](const std::string& name) { progress.show(name); });
  }
  if (!comparison.first() && !comparison.stopped)
    throw UserError(ExitCode::does_not_fit,
                    fmt::format("no lever makes the run fit: {}", comparison.levers.back().why_not),
                    "use a smaller model, a shorter data.seq, more ranks, or more memory");
  fmt::print("{}", s.json ? levers_json(run, comparison, shown) : levers_text(run, comparison, shown));
  return static_cast<int>(comparison.ok() ? ExitCode::done : ExitCode::check_failed);
}

}  // namespace lockstep
