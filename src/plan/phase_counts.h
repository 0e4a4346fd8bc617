// What a phase of a unit computes and sends, counted once for all micro-batches that do the same
// (train/phase_counter.h).
#pragma once
#include <map>
#include <tuple>
#include <vector>

#include "plan/message_tally.h"
#include "tensor/meta/stream.h"
#include "train/phase_counter.h"

namespace lockstep {

class PhaseCounts final : public PhaseCounter {
 public:
  // Both outlive it.
  PhaseCounts(meta::Stream& stream, MessageTally& tally) : stream_(stream), tally_(tally) {}

  bool has_counted(const Action& phase, bool accumulates) override;
  void has_run(const Action& phase, bool accumulates) override;

 private:
  using Key = std::tuple<ActionKind, int, bool>;  // phase, unit, whether it adds to gradients
  struct Count {
    meta::Work work;
    std::vector<std::pair<SentMessages*, SentMessages>> sent;
  };

  meta::Stream& stream_;
  MessageTally& tally_;
  std::map<Key, Count> known_;
  meta::Work work_before_;
  MessageTally sent_before_;
};

}  // namespace lockstep
