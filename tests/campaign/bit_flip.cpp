#include "campaign/bit_flip.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <stdexcept>

#include "checkpoint/find_checkpoint.h"
#include "support/devices.h"
#include "support/flipped_memory.h"
#include "support/stopped_process.h"

namespace lockstep::tests {

namespace {

constexpr std::int64_t kVocabulary = 128, kUsed = 64, kWidth = 32, kRowsFlipped = 4;

// Rows that no token of the data asks for, as the newest checkpoint has them; empty: there is none yet.
std::vector<std::byte> unused_rows(const CampaignRun& run, Draws& draws) {
  const std::int64_t first = kUsed + draws.below(kVocabulary - kUsed - kRowsFlipped);
  try {
    const auto saved = find_checkpoint(run.out());
    if (!saved) return {};
    CpuDevice cpu;
    std::vector<double> values(kVocabulary * kWidth);
    const StateTensor rows{.part = kWeightPart,
                           .tensor = {"model.embed_tokens.weight", {kVocabulary, kWidth}},
                           .range = {0, kVocabulary * kWidth, kVocabulary * kWidth, 1},
                           .live = Tensor(values.data(), DType::f64, Device::cpu, {kVocabulary * kWidth})};
    saved->load({&rows, 1}, cpu.stream());
    const auto all = std::as_bytes(std::span(values).subspan(static_cast<std::size_t>(first * kWidth),
                                                             static_cast<std::size_t>(kRowsFlipped * kWidth)));
    return {all.begin(), all.end()};
  } catch (const std::exception&) {  // removed while it was read
    return {};
  }
}

}  // namespace

std::vector<std::string> settings_for_bit_flips() {
  std::vector<std::string> all;
  // Neither saves nor copies in memory have a second copy of the state, in which a flip would be noticed by nobody.
  for (const std::string setting : {"model.vocabulary=128", "optim.weight_decay=0", "train.async_save=false",
                                    "train.copy_every=0", "run.check_state=5"})
    all.insert(all.end(), {"--set", setting});
  return all;
}

void flip_a_bit(CampaignRun& run, Draws& draws, Injection& injection) {
  std::vector<std::byte> rows;
  wait_until(run, 30, [&] { return !(rows = unused_rows(run, draws)).empty(); });
  std::map<int, pid_t> ranks = run.ranks();
  injection.committed = run.newest_checkpoint();
  while (!ranks.empty() && !rows.empty()) {
    const auto at = std::next(ranks.begin(), draws.below(std::ssize(ranks)));
    const auto [rank, pid] = *at;
    ranks.erase(at);
    std::unique_ptr<StoppedProcess> stopped;
    wait_until(run, 5, [&] {  // what is being written has been checked already
      stopped.reset();
      stopped = std::make_unique<StoppedProcess>(pid);
      return !run.is_saving();
    });
    const int flipped = flip_in_process(pid, rows);
    stopped.reset();
    if (flipped < 0 && run.ranks().contains(rank))
      throw std::runtime_error("the memory of another process may not be written here");
    if (flipped < 1) continue;
    injection.target = fmt::format("rank {} (process {}), {} places", rank, pid, flipped);
    injection.culprits = {fmt::format("rank {} (host", rank), fmt::format("rank {}: ", rank),
                          "nobody can tell whose is wrong"};
    return;
  }
}

}  // namespace lockstep::tests
