// What makes a run slow, from where the time of its last steps went.
//
// Thresholds are shares of the step below which a person would not act: a tenth for data (a healthy run has less than a
// hundredth), more for saving and evaluating, which are asked for, and for updates of state that is offloaded: a step
// moves as many bytes whatever its batch is, so a quarter of it says that the batch is small for that. Micro-batches
// are too small where a rank computes nearly all the time, reaches little of what the machine gives (MFU below
// kLowMfu), and has fewer tokens at once than kFewTokens: one core of an AVX-512 machine reached 76% MFU with 512
// tokens of llama-1m at once, 41% with 8 and 11% with 2; a GPU needs thousands.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "telemetry/doctor/rules.h"
#include "telemetry/doctor/waits.h"
#include "telemetry/number_text.h"

namespace lockstep::doctor {

namespace {

constexpr double kDataCosts = 0.10, kSaveCosts = 0.20, kEvaluateCosts = 0.35, kCoreCosts = 0.20, kGpuCosts = 0.05;
constexpr double kOffloadCosts = 0.25;
constexpr double kLowMfu = 0.30, kLeastCoreSeconds = 1, kLeastGpuSeconds = 5;
constexpr std::int64_t kFewTokensOnCpu = 16, kFewTokensOnGpu = 1024;

void find_slow_data(const TimeView& view, std::vector<Finding>& findings) {
  const double share = view.shares[TimeUse::data];
  if (share < kDataCosts) return;
  Finding finding{.name = "slow_data", .severity = Severity::slow, .cost = share};
  finding.summary = fmt::format("reading the data takes {} of the time", percent(share));
  finding.evidence = {fmt::format("{} of a step of {}, mean of {} steps", seconds_text(share * view.step),
                                  seconds_text(view.step), view.steps)};
  finding.remedies = {"make the tokens once: `lockstep tokenize FILES --out x.tokens`, then data.tokens=x.tokens",
                      "put the token file on a disk of this host: reading it should take microseconds",
                      "data.synthetic with order=2 or a large vocabulary is costly: use order=1"};
  findings.push_back(std::move(finding));
}

void find_costly(const TimeView& view, TimeUse use, double limit, std::vector<Finding>& findings) {
  const double share = view.shares[use];
  if (share < limit) return;
  const bool save = use == TimeUse::save;
  Finding finding{.name = save ? "slow_saves" : "slow_evaluation", .severity = Severity::slow, .cost = share};
  finding.summary = fmt::format("{} takes {} of the time", save ? "saving checkpoints" : "evaluation", percent(share));
  finding.evidence = {fmt::format("{} per step of {}, mean of {} steps", seconds_text(share * view.step),
                                  seconds_text(view.step), view.steps)};
  finding.remedies = save ? std::vector<std::string>{"save less often: train.save_every",
                                                     "write beside the training: train.async_save=true",
                                                     "put the run folder on a faster disk: run.out"}
                          : std::vector<std::string>{"evaluate less often: train.eval_every",
                                                     "evaluate fewer batches: train.eval_batches"};
  findings.push_back(std::move(finding));
}

void find_costly_offload(const RunRecords& run, const TimeView& view, std::vector<Finding>& findings) {
  const RunPlan& plan = run.plan;
  const double share = view.shares[TimeUse::optimizer];
  if (!plan.moved_bytes || *plan.moved_bytes <= 0 || share < kOffloadCosts) return;
  const std::string where = plan.offload.value_or("none") == "host" ? "the host" : "a disk";
  const double seconds = share * view.step;
  Finding finding{.name = "offload_costs", .severity = Severity::slow, .cost = share};
  finding.summary = fmt::format("updates take {} of the time, with their state on {}", percent(share), where);
  finding.evidence = {
      fmt::format("{} of a step of {}, mean of {} steps", seconds_text(seconds), seconds_text(view.step), view.steps),
      fmt::format(
          "a step moves {}, there and back: {}/s", byte_text(*plan.moved_bytes),
          byte_text(static_cast<std::int64_t>(static_cast<double>(*plan.moved_bytes) / std::max(seconds, 1e-9))))};
  finding.remedies.push_back(
      plan.global_batch
          ? fmt::format("take more samples per step, which move no more state: train.global_batch={} or more",
                        2 * std::clamp<std::int64_t>(*plan.global_batch, 1, std::int64_t{1} << 40))
          : "take more samples per step, which move no more state: train.global_batch");
  finding.remedies.push_back(
      fmt::format("offload no more than must be: memory.offload_share below {:.2g}", plan.offload_share.value_or(1)));
  finding.remedies.push_back(
      "memory.offload_optimizer=none, and so gradients and parameters, if it fits: `lockstep plan --fit` says whether "
      "other settings make it fit");
  findings.push_back(std::move(finding));
}

// "4 ranks of 1 thread share 2 cores", where the run itself has more threads than cores; else empty. The plan has the
// cores of rank 0's process, which a launcher may have bound to few, and those of its host: the former are for the
// ranks of one process, the latter for all ranks of a host.
std::string more_than_cores(const RunRecords& run, const RankNow& of) {
  std::int64_t of_process = 0, of_host = 0;
  for (const auto& [rank, state] : run.now) {
    if (state.now.host != of.host) continue;
    ++of_host;
    if (state.now.pid == of.pid) ++of_process;
  }
  const std::int64_t threads = run.plan.threads.value_or(1);
  const auto text = [&](std::int64_t ranks, const std::string& cores) {
    return fmt::format("{} rank{} of {} thread{} share{} {}", ranks, ranks == 1 ? "" : "s", threads,
                       threads == 1 ? "" : "s", ranks == 1 ? "s" : "", cores);
  };
  const auto plural = [](std::int64_t cores) { return fmt::format("{} core{}", cores, cores == 1 ? "" : "s"); };
  if (run.plan.cores && of_process * threads > *run.plan.cores) return text(of_process, plural(*run.plan.cores));
  if (run.plan.host_cores && of_host * threads > *run.plan.host_cores)
    return text(of_host, fmt::format("the {} of {}", plural(*run.plan.host_cores), of.host));
  return "";
}

void find_shared_core(const RunRecords& run, const TimeView& view, std::vector<Finding>& findings) {
  int worst = -1;
  double sum = 0, most = 0;
  int ranks = 0;
  for (const auto& [rank, state] : run.now) {
    if (!state.now.cpu || state.now.cpu->ran + state.now.cpu->waited < kLeastCoreSeconds) continue;
    const double share = state.now.cpu->waited_share();
    sum += share;
    ++ranks;
    if (share > most) most = share, worst = rank;
  }
  if (ranks == 0 || most < kCoreCosts) return;
  const RankCpu& cpu = *run.now.at(worst).now.cpu;
  Finding finding{.name = "shared_core", .severity = Severity::slow, .cost = most};
  finding.summary = fmt::format("the cores are shared: rank {} was ready to compute and had no core {} of that time",
                                worst, percent(most));
  finding.evidence = {fmt::format("it ran {} and waited {} for a core; mean of {} rank{}: {}", seconds_text(cpu.ran),
                                  seconds_text(cpu.waited), ranks, ranks == 1 ? "" : "s",
                                  percent(sum / static_cast<double>(ranks)))};
  if (view.step > 0)
    finding.evidence.push_back(fmt::format("a step takes {}, median of {}", seconds_text(view.step), view.steps));
  if (const std::string too_many = more_than_cores(run, run.now.at(worst).now); !too_many.empty())
    finding.remedies.push_back(too_many + ": use fewer with --ranks or run.threads");
  finding.remedies.insert(finding.remedies.end(),
                          {"end other programs on that host (`top` shows them), or give the run cores of its own",
                           "if a launcher pins processes to few cores, let it not (mpirun --bind-to none, taskset), or "
                           "set run.pin=false",
                           "use fewer ranks or threads: --ranks, run.threads"});
  findings.push_back(std::move(finding));
}

void find_throttled_gpu(const RunRecords& run, std::vector<Finding>& findings) {
  if (run.steps.empty()) return;
  for (const auto& [rank, state] : run.now) {
    if (!state.now.gpu) continue;
    const RankGpu& gpu = *state.now.gpu;
    const double trained = state.now.time - run.steps.front().time;
    const double share = known(trained) && trained > 0 ? std::min(1.0, gpu.throttled_seconds / trained) : 0;
    if (gpu.throttled_seconds < kLeastGpuSeconds || share < kGpuCosts) continue;
    Finding finding{.name = "throttled_gpu", .severity = Severity::slow, .cost = share};
    finding.summary = fmt::format("the GPU of rank {} holds its clock back {} of the time", rank, percent(share));
    finding.evidence = {fmt::format("{} of {}; now {:.0f} MHz at {:.0f} degrees Celsius{}",
                                    seconds_text(gpu.throttled_seconds), seconds_text(trained), gpu.sm_mhz,
                                    gpu.temperature,
                                    gpu.throttled.empty() ? "" : fmt::format(", {}", fmt::join(gpu.throttled, ", ")))};
    finding.remedies = {
        fmt::format("look after the cooling and the power supply of {}; `nvidia-smi -q -d PERFORMANCE` "
                    "there says more",
                    state.now.host),
        fmt::format("leave that GPU out: CUDA_VISIBLE_DEVICES, or {}", resume_command(run, "--ranks N"))};
    findings.push_back(std::move(finding));
    return;
  }
}

void find_small_micro_batches(const RunRecords& run, const TimeView& view, std::vector<Finding>& findings) {
  const RunPlan& plan = run.plan;
  if (!plan.micro || *plan.micro < 2 || !plan.micro_batch || !plan.seq || !known(view.mfu)) return;
  const std::int64_t tokens = *plan.micro_batch * *plan.seq / view.along("cp");
  const std::int64_t few = plan.device == "cuda" ? kFewTokensOnGpu : kFewTokensOnCpu;
  const double computes = view.shares[TimeUse::compute];
  if (tokens >= few || view.mfu >= kLowMfu || computes < 0.5) return;
  Finding finding{
      .name = "small_micro_batches", .severity = Severity::slow, .cost = computes * (1 - view.mfu / kLowMfu)};
  finding.summary =
      fmt::format("micro-batches are too small: a rank computes {} token{} at once", tokens, tokens == 1 ? "" : "s");
  finding.evidence = {fmt::format(
      "{} micro-batches of {} row{} of {} tokens; MFU {} though {} of the time is computing", *plan.micro,
      *plan.micro_batch, *plan.micro_batch == 1 ? "" : "s", *plan.seq, percent(view.mfu), percent(computes))};
  const std::int64_t stages = view.along("pp");
  finding.remedies = {
      stages > 1 ? fmt::format("use fewer micro-batches, but at least twice the stages: layout.micro={}",
                               std::max(2 * stages, *plan.micro / 4))
                 : fmt::format("use fewer micro-batches: layout.micro={}", std::max<std::int64_t>(1, *plan.micro / 8)),
      "take more samples per step, or longer ones: train.global_batch, data.seq",
      "`lockstep plan` says whether that fits into memory"};
  findings.push_back(std::move(finding));
}

}  // namespace

void find_throughput(const RunRecords& run, std::vector<Finding>& findings) {
  find_throttled_gpu(run, findings);
  const TimeView view = view_of_time(run);
  if (view.steps < kFewestSteps) return;
  find_slow_data(view, findings);
  find_costly(view, TimeUse::save, kSaveCosts, findings);
  find_costly(view, TimeUse::evaluate, kEvaluateCosts, findings);
  find_costly_offload(run, view, findings);
  find_shared_core(run, view, findings);
  find_slow_rank(run, view, findings);
  find_imbalance(view, findings);
  find_bubble(run, view, findings);
  find_slow_links(run, view, findings);
  find_small_micro_batches(run, view, findings);
}

}  // namespace lockstep::doctor
