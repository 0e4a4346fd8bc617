#include "plan/phase_counts.h"

#include "plan/work_sums.h"

namespace lockstep {

bool PhaseCounts::has_counted(const Action& phase, bool accumulates) {
  const auto known = known_.find({phase.kind, phase.unit, accumulates});
  if (known == known_.end()) {
    work_before_ = stream_.work();
    sent_before_ = tally_;
    return false;
  }
  stream_.work() += known->second.work;
  for (const auto& [total, sent] : known->second.sent) *total += sent;
  return true;
}

void PhaseCounts::has_run(const Action& phase, bool accumulates) {
  Count count{.work = stream_.work() - work_before_, .sent = {}};
  for (const auto& [name, kinds] : tally_.groups()) {
    const MessageTally::OfGroup& before = sent_before_.group(name);
    for (const auto& [kind, now] : kinds) {
      const auto then = before.find(kind);
      const SentMessages sent = then == before.end() ? now : now - then->second;
      if (sent.calls > 0) count.sent.emplace_back(&tally_.group(name).at(kind), sent);
    }
  }
  known_.emplace(Key{phase.kind, phase.unit, accumulates}, std::move(count));
}

}  // namespace lockstep
