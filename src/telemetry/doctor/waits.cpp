// What ranks wait for: a rank that takes longer than its peers, stages of unequal work, the pipeline's bubble, or
// messages.
//
// Ranks of one stage have the same work, so one that needs kSlower times what its peers need, and holds them for
// kCosts of the step, is slow itself; between stages the work differs. The median over a hundred steps of equal ranks
// differs by some percent, also where ranks share a machine with others. Times are without what the rank spent waiting
// for a core, which is a finding of its own.
//
// What messages take is the least that any rank waits: kLinkCosts of the step where nothing is said of the cores. A
// rank that has no core lets the others wait too, up to twice as long as it waits itself.
//
// The bubble is what was measured: the share of the step that ranks wait along pp. From kBubbleCosts on it is a finding
// where the schedule makes at least half of it and there are fewer than kEnoughMicro micro-batches per stage, with
// which 1F1B stands empty a fifth of the time; else ranks wait for something that has a finding of its own.
#include "telemetry/doctor/waits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "telemetry/doctor/rules.h"
#include "telemetry/number_text.h"
#include "telemetry/slow_ranks.h"

namespace lockstep::doctor {

namespace {

constexpr double kSlower = 1.25, kCosts = 0.10, kLinkCosts = 0.25, kOverlapCosts = 0.10, kBubbleCosts = 0.30;
constexpr std::int64_t kEnoughMicro = 4;  // per stage

std::string wait_text(const TimeView& view) {
  double waits = 0;
  for (int use = 0; use < kTimeUses; ++use)
    if (is_wait(static_cast<TimeUse>(use))) waits += view.shares.seconds[static_cast<std::size_t>(use)];
  return fmt::format("ranks wait {} of the time, mean over all", percent(waits));
}

// "4.1 MiB in 3 calls".
std::string sent_text(const SentOnAxis& sent) {
  return fmt::format("{} in {} call{}", byte_text(sent.bytes), sent.calls, sent.calls == 1 ? "" : "s");
}

constexpr std::array<std::pair<TimeUse, const char*>, 4> kAxes = {
    {{TimeUse::wait_dp, "dp"}, {TimeUse::wait_pp, "pp"}, {TimeUse::wait_cp, "cp"}, {TimeUse::wait_tp, "tp"}}};

std::vector<std::string> link_remedies(const std::string& axis) {
  const std::string measure = "`lockstep bench comm` measures what the link gives";
  if (axis == "dp")
    return {
        "give each rank more to compute per message: a larger train.global_batch, with layout.micro if memory is "
        "short",
        "send fewer bytes: precision.compute=bf16 with precision.gradients=bf16",
        "send earlier and in larger parts: layout.overlap=on, layout.bucket", measure};
  if (axis == "tp")
    return {"keep the ranks of tp on one host, or make layout.tp smaller and layout.pp or layout.dp larger",
            "hide more of it with layout.tp_chunks", measure};
  if (axis == "cp")
    return {"try the other way to exchange keys and values, layout.cp_kind=ulysses or ring",
            "make layout.cp smaller and layout.dp larger", measure};
  return {"send less often with fewer, larger micro-batches: layout.micro, data.seq",
          "try layout.schedule=interleaved or zb-h1, which compute while messages travel", measure};
}

}  // namespace

void find_slow_rank(const RunRecords& run, const TimeView& view, std::vector<Finding>& findings) {
  int slowest = -1;
  double worst = 0, usual = 0;
  std::vector<double> seconds;
  std::vector<PeerWork> work;
  for (const auto& [rank, times] : view.ranks) {
    seconds.push_back(times.work());
    work.push_back({.peers = view.stage_of(rank)});
  }
  const std::vector<double> references = usual_of_peers(seconds, work);
  std::size_t i = 0;
  for (const auto& [rank, times] : view.ranks) {
    const double reference = references[i++], excess = times.work() - reference;  // NaN: it has no peers
    if (times.work() > kSlower * reference && excess > kCosts * view.step && excess > worst)
      slowest = rank, worst = excess, usual = reference;
  }
  if (slowest < 0) return;
  const RankTimes& times = view.ranks.at(slowest);
  Finding finding{.name = "slow_rank", .severity = Severity::slow, .cost = worst / view.step};
  finding.summary = fmt::format("rank {} takes {:.1f} times as long as the other ranks for the same work", slowest,
                                times.work() / usual);
  finding.evidence = {fmt::format("it is busy {} per step, the others {} (medians of {} steps)",
                                  seconds_text(times.work()), seconds_text(usual), view.steps),
                      wait_text(view)};
  if (const auto now = run.now.find(slowest); now != run.now.end())
    finding.evidence.push_back(fmt::format("it is process {} on {}", now->second.now.pid, now->second.now.host));
  const bool plain = run.plan.layout && run.plan.layout->find("cp_order=plain") != std::string::npos;
  if (plain && view.along("cp") > 1)
    finding.remedies.push_back(
        "split samples evenly with layout.cp_order=zigzag: with plain the last rank has most to do");
  if (run.plan.layout && run.plan.layout->find("uneven=on") != std::string::npos)
    finding.remedies.push_back("give all ranks the same part of the batch: layout.uneven=off");
  finding.remedies.insert(
      finding.remedies.end(),
      {"look at its host: other programs, clock, temperature, swap; `lockstep bench` there and on another host",
       fmt::format("leave that host out and {} with the others", resume_command(run, "--ranks N"))});
  findings.push_back(std::move(finding));
}

void find_imbalance(const TimeView& view, std::vector<Finding>& findings) {
  const std::int64_t stages = view.along("pp");
  if (stages < 2) return;
  std::vector<double> sum(static_cast<std::size_t>(stages)), count(sum.size());
  for (const auto& [rank, times] : view.ranks) {
    const auto stage = static_cast<std::size_t>(view.stage_of(rank));
    sum[stage] += times.work();
    count[stage] += 1;
  }
  double all = 0, most = 0;
  std::size_t fullest = 0;
  for (std::size_t stage = 0; stage < sum.size(); ++stage) {
    if (count[stage] == 0) return;
    const double work = sum[stage] / count[stage];
    all += work / static_cast<double>(stages);
    if (work > most) most = work, fullest = stage;
  }
  if (most < kSlower * all || most - all < kCosts * view.step) return;
  Finding finding{.name = "imbalance", .severity = Severity::slow, .cost = (most - all) / view.step};
  finding.summary =
      fmt::format("stage {} of {} has {:.1f} times the work of the mean stage", fullest, stages, most / all);
  finding.evidence.push_back(fmt::format("its ranks are busy {} per step, all ranks {} (medians of {} steps)",
                                         seconds_text(most), seconds_text(all), view.steps));
  finding.evidence.push_back(wait_text(view));
  finding.remedies = {
      "let layers be dealt out by what they cost: layout.stages=cost, or by hand as in layout.stages=5+3",
      "if its layers are no more than the others', look at its host: `lockstep bench` there"};
  findings.push_back(std::move(finding));
}

void find_bubble(const RunRecords& run, const TimeView& view, std::vector<Finding>& findings) {
  const std::int64_t stages = view.along("pp");
  if (stages < 2 || !run.plan.micro) return;
  const double ideal = run.plan.ideal_bubble.value_or(static_cast<double>(stages - 1) /
                                                      static_cast<double>(*run.plan.micro + stages - 1));
  const std::int64_t enough = kEnoughMicro * stages;
  // What a rank without a core makes the others wait is not the schedule's, but the schedule's part stays.
  const double made_by_run = std::max(view.bubble - 2 * view.delayed(), std::min(ideal, view.bubble));
  if (made_by_run < kBubbleCosts || ideal < view.bubble / 2 || *run.plan.micro >= enough) return;
  Finding finding{.name = "bubble", .severity = Severity::slow, .cost = view.bubble};
  finding.summary = fmt::format("{} micro-batch{} too few for {} stages: the pipeline stands empty {} of the time",
                                *run.plan.micro, *run.plan.micro == 1 ? " is" : "es are", stages, percent(view.bubble));
  finding.evidence = {fmt::format("measured: {} of the step, median of {} steps; the schedule alone makes it {}",
                                  percent(view.bubble), view.steps, percent(ideal))};
  finding.remedies = {fmt::format("use more micro-batches: layout.micro={}", enough),
                      "use a schedule with a smaller bubble: layout.schedule=interleaved, zb-h1 or zb-v",
                      "`lockstep schedule` draws them"};
  findings.push_back(std::move(finding));
}

void find_slow_links(const RunRecords& run, const TimeView& view, std::vector<Finding>& findings) {
  if (view.ranks.size() < 2) return;
  const double excused = 2 * view.delayed();
  for (const auto& [use, axis] : kAxes) {
    double share = view.least_wait(use);
    if (use == TimeUse::wait_pp) {
      const double stages = static_cast<double>(view.along("pp"));
      const double ideal =
          run.plan.ideal_bubble.value_or((stages - 1) / (static_cast<double>(run.plan.micro.value_or(1)) + stages - 1));
      share -= ideal;
    }
    const bool off = run.plan.overlap == false && use == TimeUse::wait_dp;
    if (share < (off ? kOverlapCosts : kLinkCosts) + excused) continue;
    Finding finding{.name = off ? "overlap_off" : "slow_link", .severity = Severity::slow, .cost = share};
    finding.summary =
        off ? fmt::format("layout.overlap is off: every rank waits {} of the step for gradients along dp",
                          percent(share))
            : fmt::format("messages along {} are slow: every rank waits {} of the step for them", axis, percent(share));
    const RankHistory& first = run.ranks.begin()->second;
    if (const auto sent = first.sent.find(axis); sent != first.sent.end()) {
      const double waited = share * view.step;
      finding.evidence.push_back(
          fmt::format("rank {} sends {} per step along {} and waits {} of {}: {}/s at most", run.ranks.begin()->first,
                      sent_text(sent->second), axis, seconds_text(waited), seconds_text(view.step),
                      byte_text(static_cast<std::int64_t>(static_cast<double>(sent->second.bytes) / waited))));
    }
    if (run.plan.link_bytes_per_s && *run.plan.link_bytes_per_s > 0)
      finding.evidence.push_back(fmt::format("`bench comm` measured {}/s here",
                                             byte_text(static_cast<std::int64_t>(*run.plan.link_bytes_per_s))));
    if (finding.evidence.empty()) finding.evidence.push_back(wait_text(view));
    finding.remedies = link_remedies(axis);
    if (off) finding.remedies.insert(finding.remedies.begin(), "send while something is computed: layout.overlap=on");
    findings.push_back(std::move(finding));
  }
}

}  // namespace lockstep::doctor
