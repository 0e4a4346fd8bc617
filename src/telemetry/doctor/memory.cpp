// Memory that is nearly used up, and what took it; memory that swings.
//
// Buffers have their sizes from the start, so a run that fits at its first step fits at its last, but not beside other
// programs: kTight of what there is leaves no room for them. What made the peak is in the ledger's numbers, by tag:
// activations grow from the forward to the backward, where they are all held at once.
//
// A run takes its buffers once, so what the ledger holds after one step it holds after the next, to the byte. What its
// process holds besides moves little: of llama-1m with a save every 20 and an evaluation every 10 steps it rose by a
// tenth at the first save and by less than 0.1% in the 100 steps after. Swings from kSwings on are memory that is taken
// and given back over and over: each time the most of it must be free, and the system clears it anew. The smaller of
// rises and falls counts, and kLeastSwing leaves out what an allocator does.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "telemetry/doctor/rules.h"
#include "telemetry/number_text.h"

namespace lockstep::doctor {

namespace {

constexpr double kTight = 0.85, kSwings = 0.10;
constexpr std::int64_t kLeastSwing = 8 << 20;

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

// The tag that made most of the peak; empty: not known.
std::string largest_tag(const BytesOfTags& peaks) {
  std::string tag;
  for (const auto& [name, bytes] : peaks)
    if (tag.empty() || bytes > peaks.at(tag)) tag = name;
  return tag;
}

void find_tight_memory(const RunRecords& run, std::vector<Finding>& findings) {
  const Used worst = tightest(run);
  if (worst.rank < 0 || worst.share() < kTight) return;
  const auto history = run.ranks.find(worst.rank);
  const BytesOfTags& peaks = history != run.ranks.end() && !history->second.peak_bytes.empty()
                                 ? history->second.peak_bytes
                                 : run.detail.peak_bytes;
  Finding finding{.name = "memory_peak", .severity = Severity::memory};
  std::int64_t all = 0;
  for (const auto& [name, bytes] : peaks) all += bytes;
  const std::string tag = largest_tag(peaks);
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

// What the ledger of rank 0 has taken and given back between the last steps.
void find_swings_of_buffers(const RunRecords& run, std::vector<Finding>& findings) {
  constexpr std::size_t kLast = 100;
  double risen = 0, fallen = 0, least = 0, most = 0, before = kUnknown;
  for (std::size_t i = run.steps.size() - std::min(kLast, run.steps.size()); i < run.steps.size(); ++i) {
    const double held = run.steps[i].bytes;
    if (!known(held)) continue;
    if (!known(before)) least = most = before = held;
    (held > before ? risen : fallen) += std::abs(held - before);
    least = std::min(least, held), most = std::max(most, held);
    before = held;
  }
  const double swing = std::min(risen, fallen);
  if (swing < kSwings * most || swing < static_cast<double>(kLeastSwing)) return;
  const auto text = [](double bytes) { return byte_text(static_cast<std::int64_t>(bytes)); };
  Finding finding{.name = "memory_swings", .severity = Severity::memory};
  finding.summary =
      fmt::format("what the run holds between steps swings: from {} to {} and back", text(least), text(most));
  finding.evidence.push_back(fmt::format("over the last {} steps rank 0 has taken {} and given back {}",
                                         std::min(kLast, run.steps.size()), text(risen), text(fallen)));
  finding.remedies = remedies_for(largest_tag(run.detail.peak_bytes), run);
  findings.push_back(std::move(finding));
}

// What a process has taken and given back in the last minute.
void find_swings_of_process(const RunRecords& run, std::vector<Finding>& findings) {
  int rank = -1;
  RankMemory worst;
  for (const auto& [number, state] : run.now)
    if (const auto& memory = state.now.memory; memory && memory->swing > worst.swing) rank = number, worst = *memory;
  if (rank < 0 || worst.swing < kLeastSwing ||
      static_cast<double>(worst.swing) < kSwings * static_cast<double>(worst.held))
    return;
  Finding finding{.name = "memory_swings", .severity = Severity::memory};
  finding.summary = fmt::format("the process of rank {} takes memory and gives it back: {} in a minute, of {}", rank,
                                byte_text(worst.swing), byte_text(worst.held));
  finding.evidence.push_back(known(run.last.bytes)
                                 ? fmt::format("the run's own buffers do not: rank 0 holds {} of them after each step",
                                               byte_text(static_cast<std::int64_t>(run.last.bytes)))
                                 : "the run's own buffers are taken once, before the first step");
  finding.remedies = {"save and evaluate less often, if it swings with them: train.save_every, train.eval_every",
                      "write no timeline (run.trace=0) while it matters",
                      "leave that much free: `lockstep plan` says what the run itself needs"};
  findings.push_back(std::move(finding));
}

}  // namespace

void find_memory(const RunRecords& run, std::vector<Finding>& findings) {
  find_tight_memory(run, findings);
  const std::size_t before = findings.size();
  find_swings_of_buffers(run, findings);
  if (findings.size() == before) find_swings_of_process(run, findings);
}

}  // namespace lockstep::doctor
