#include "support/pipedream_ranks.h"

#include <gtest/gtest.h>

#include <mutex>

#include "checkpoint/hf_tensors.h"
#include "comm/threads/run_ranks.h"
#include "support/rank_device.h"

namespace lockstep::tests {

PipeDreamRun pipedream_run(const ModelSpec& spec, ScheduleKind kind, std::int64_t pp, std::int64_t micro,
                           std::int64_t dp, std::int64_t tp) {
  PipeDreamRun run{.options = {.spec = spec,
                               .B = 2 * micro * dp,
                               .T = 7,
                               .layout = {.dp = dp, .pp = pp, .schedule = kind, .tp = tp, .micro = micro},
                               .precision = Precision::fp64,
                               .seed = 5}};
  run.options.spec.tied = false;
  run.options.spec.layers = std::max<std::int64_t>(spec.layers, pp - 1);
  // The gradient of some samples alone would draw other masks: those of samples 0 and on.
  run.options.spec.dropout = run.options.spec.attention_dropout = 0;
  run.options.optimizer.clip = 0.1;  // active
  run.options.optimizer.weight_decay = 0.05;
  return run;
}

PipeDreamTrained train_pipedream(const PipeDreamRun& run, Device device) {
  const Replica::Options& o = run.options;
  const std::vector<LogicalTensor> names = logical_tensors(Model(o.spec, 1, o.T, DType::f64));
  PipeDreamTrained found;
  for (const LogicalTensor& name : names) found.run.weights.emplace_back(static_cast<std::size_t>(name.elements()));
  std::mutex mutex;
  run_ranks(static_cast<int>(o.layout.ranks()), [&](std::unique_ptr<Communicator> group) {
    RankDevice on(device, *group);
    Replica replica(o, on.ranks(), on.memory(), on.stream());
    replica.init_weights();
    std::vector<double> losses;
    const auto finish = [&](int most) {
      while (replica.steps_in_flight() > most) {
        const Replica::Result result = replica.finish_step();
        EXPECT_TRUE(result.updated);
        losses.push_back(result.loss);
      }
    };
    for (std::int64_t step = 0; step < run.steps; ++step) {
      const TokenBatch all = run.batch(step);
      const auto part = [&, given = replica.given()](const std::vector<std::int32_t>& whole) {
        return std::span(whole).subspan(static_cast<std::size_t>(given.first * o.T),
                                        static_cast<std::size_t>(given.count * o.T));
      };
      replica.set_learning_rate(run.rate(step));
      replica.begin_step(part(all.tokens), part(all.targets));
      finish(1);
      if (!run.drained.contains(step + 1)) continue;
      finish(0);
      EXPECT_TRUE(replica.drain());
    }
    finish(0);
    EXPECT_TRUE(replica.drain());
    const std::lock_guard lock(mutex);
    if (group->rank() == 0) found.run.losses = losses;
    for (const Replica::Named& t : replica.tensors()) {
      const auto at = std::ranges::find(names, t.tensor.name, &LogicalTensor::name) - names.begin();
      found.stage_of[t.tensor.name] = static_cast<int>(o.layout.stage(group->rank()));
      if (!t.runs.empty()) t.put(to_doubles(t.master, on.stream()), found.run.weights[static_cast<std::size_t>(at)]);
    }
  });
  return found;
}

}  // namespace lockstep::tests
