#include "plan/step_memory.h"

#include "plan/message_tally.h"
#include "train/training_run.h"

namespace lockstep {

StepMemory step_memory(const RunSpec& spec, int rank) {
  MessageTally tally;
  CountingCommunicator ranks(rank, static_cast<int>(spec.layout.ranks()), "world", tally);
  const RunData data(spec);
  TrainingRun run(spec, Device::meta, "", {.ranks = &ranks, .data = &data, .data_of_rank = true});
  run.init_weights();
  run.step(0, spec.optimizer.learning_rate);
  const Model& model = run.replica().model();
  const RankStep& own = run.replica().rank_step();

  StepMemory memory;
  for (int t = 0; t < kTags; ++t) memory.held[static_cast<std::size_t>(t)] = run.ledger().current(static_cast<Tag>(t));
  const std::vector<std::int64_t> activations = live_bytes(model.slots(), own.actions, own.shape);
  std::int64_t gathered = 0;
  for (std::size_t i = 0; i < own.actions.size(); ++i) {
    const Action& action = own.actions[i];
    const auto unit_bytes = [&] { return model.unit(action.unit).layout().owned() * size_of(model.dtype()); };
    if (action.kind == ActionKind::gather) gathered += unit_bytes();
    StepMemory::ByTag now = memory.held;
    now[static_cast<std::size_t>(Tag::activation)] = activations[i];
    now[static_cast<std::size_t>(Tag::gathered)] = gathered;
    memory.in_use.push_back(now);
    if (action.kind == ActionKind::release) gathered -= unit_bytes();
  }
  return memory;
}

}  // namespace lockstep
