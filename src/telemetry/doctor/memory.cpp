// Memory that is nearly used up, and what took it.
//
// Buffers have their sizes from the start, so a run that fits at its first step fits at its last, but not beside other
// programs: kTight of what there is leaves no room for them. What made the peak is in the ledger's numbers, by tag:
// activations grow from the forward to the backward, where they are all held at once.
#include <fmt/format.h>

#include <algorithm>

#include "telemetry/doctor/rules.h"
#include "telemetry/number_text.h"

namespace lockstep::doctor {

namespace {

constexpr double kTight = 0.85;

struct Used {
  int rank = -1;
  std::int64_t used = 0, limit = 0;
  bool gpu = false;
  double share() const { return static_cast<double>(used) / static_cast<double>(limit); }
};

Used tightest(const RunRecords& run) {
  Used worst;
  const auto consider = [&](const Used& one) {
    if (one.limit > 0 && (worst.rank < 0 || one.share() > worst.share())) worst = one;
  };
  for (const auto& [rank, state] : run.now) {
    if (state.now.memory) consider({.rank = rank, .used = state.now.memory->used, .limit = state.now.memory->limit});
    if (state.now.gpu)
      consider({.rank = rank, .used = state.now.gpu->memory_used, .limit = state.now.gpu->memory_total, .gpu = true});
  }
  return worst;
}

std::vector<std::string> remedies_for(const std::string& tag, const RunRecords& run) {
  std::vector<std::string> remedies;
  if (tag == "activation" || tag == "workspace") {
    const std::string level = run.plan.recompute.value_or("none");
    if (level != "projections" && level != "full")
      remedies.push_back("recompute activations in the backward: memory.recompute=projections");
    else if (level == "projections")
      remedies.push_back("keep the input of each block alone: memory.recompute=full");
    remedies.push_back(run.plan.micro
                           ? fmt::format("halve what is computed at once: layout.micro={}", 2 * *run.plan.micro)
                           : "halve what is computed at once with layout.micro");
  } else if (tag == "gathered" || tag == "communication") {
    remedies.push_back("gather and send less at once: layout.bucket, memory.gathered=0");
  } else {
    remedies.push_back("shard the state over ranks: layout.zero=1, 2 or 3");
  }
  if (tag == "activation") remedies.push_back("send gradients in smaller parts: layout.bucket");
  remedies.push_back("`lockstep plan` says what each of these gives before it is run");
  return remedies;
}

}  // namespace

void find_memory(const RunRecords& run, std::vector<Finding>& findings) {
  const Used worst = tightest(run);
  if (worst.rank < 0 || worst.share() < kTight) return;
  const auto history = run.ranks.find(worst.rank);
  const BytesOfTags& peaks = history != run.ranks.end() && !history->second.peak_bytes.empty()
                                 ? history->second.peak_bytes
                                 : run.detail.peak_bytes;
  Finding finding{.name = "memory_peak", .severity = Severity::memory};
  std::int64_t all = 0;
  std::string tag;
  for (const auto& [name, bytes] : peaks) {
    all += bytes;
    if (tag.empty() || bytes > peaks.at(tag)) tag = name;
  }
  finding.summary = fmt::format("memory is nearly used up: {} {} of {} ({})",
                                worst.gpu ? fmt::format("on the GPU of rank {}", worst.rank)
                                          : fmt::format("the process of rank {} holds", worst.rank),
                                byte_text(worst.used), byte_text(worst.limit), percent(worst.share()));
  if (all > 0)
    finding.evidence.push_back(fmt::format("the peak{} is made by tag '{}': {} of {} ({})",
                                           tag == "activation" ? ", in the backward," : "", tag,
                                           byte_text(peaks.at(tag)), byte_text(all),
                                           percent(static_cast<double>(peaks.at(tag)) / static_cast<double>(all))));
  finding.remedies = remedies_for(tag, run);
  findings.push_back(std::move(finding));
}

}  // namespace lockstep::doctor
