#include "support/serial_local_steps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "checkpoint/hf_tensors.h"
#include "comm/threads/run_ranks.h"
#include "kernels/cross_entropy.h"
#include "support/rank_device.h"

namespace lockstep::tests {

namespace {

constexpr std::int64_t kLocalT = 9;
constexpr double kLocalRate = 3e-3;

void set_local_weights(HostRun& run, const PlainValues& values) {
  std::vector<ConstTensor> tensors;
  for (const auto& one : values) tensors.emplace_back(one.data(), DType::f64, Device::cpu, Shape{std::ssize(one)});
  run.replica->load(tensors);
}

PlainValues local_values_of(HostRun& run, Tensor Replica::Named::*which) {
  PlainValues all;
  for (const Replica::Named& t : run.replica->tensors()) {
    all.emplace_back(static_cast<std::size_t>(t.tensor.elements()));
    t.put(to_doubles(t.*which, *run.stream), all.back());
  }
  return all;
}

}  // namespace

SyncSpec local_sync(std::int64_t every, OuterStep outer) {
  SyncSpec sync;
  sync.kind = SyncKind::partial;
  sync.every = every;
  sync.outer = outer;
  return sync;
}

Replica::Options local_options(const ModelSpec& spec, const LayoutSpec& layout, const SyncSpec& sync,
                               std::int64_t samples) {
  Replica::Options o{.spec = spec,
                     .B = samples,
                     .T = kLocalT,
                     .layout = layout,
                     .precision = Precision::fp64,
                     .sync = sync,
                     .seed = 5};
  // The gradient of some samples alone would draw other masks: those of samples 0 and on.
  o.spec.dropout = o.spec.attention_dropout = 0;
  o.optimizer.clip = 0.1;  // active
  o.optimizer.weight_decay = 0.05;
  return o;
}

TokenBatch local_batch(const Replica::Options& o, std::int64_t step) {
  return random_batch(o, static_cast<unsigned>(step) + 100);
}

LocalTrajectory simulate_local_steps(const Replica::Options& o, std::int64_t groups) {
  const std::int64_t together = o.layout.dp / groups;
  Replica::Options alone = o;
  alone.layout = {};
  alone.sync = {};
  HostRun first(alone);
  first.replica->init_weights();
  const std::vector<LogicalTensor> names = logical_tensors(first.replica->model());
  const PlainValues start = local_values_of(first, &Replica::Named::master);
  PlainValues zero = start;
  for (auto& tensor : zero) std::ranges::fill(tensor, 0.0);
  std::vector<PlainAdamW> workers(static_cast<std::size_t>(groups), PlainAdamW(start));
  PlainValues anchor = start, momentum = zero;
  LocalTrajectory found;
  for (std::int64_t step = 0; step < o.sync.every * ((kLocalSteps + o.sync.every - 1) / o.sync.every); ++step) {
    const TokenBatch all = local_batch(o, step);
    double total = 0, targets = 0;
    for (std::int64_t k = 0; k < groups; ++k) {
      const Share from = share_of(o.B, o.layout, k * together), last = share_of(o.B, o.layout, (k + 1) * together - 1);
      Replica::Options own = alone;
      own.B = last.first + last.count - from.first;
      HostRun run(own);
      PlainAdamW& worker = workers[static_cast<std::size_t>(k)];
      set_local_weights(run, worker.w);
      const auto part = [&](const std::vector<std::int32_t>& whole) {
        return std::span(whole).subspan(static_cast<std::size_t>(from.first * kLocalT),
                                        static_cast<std::size_t>(own.B * kLocalT));
      };
      const double loss = run.replica->compute_gradients(part(all.tokens), part(all.targets));
      const auto counted = static_cast<double>(own.B * kLocalT - std::ranges::count(part(all.targets), kIgnoredTarget));
      total += loss * counted;
      targets += counted;
      worker.update(local_values_of(run, &Replica::Named::gradient), o.optimizer, kLocalRate, step + 1, names);
    }
    found.losses.push_back(total / targets);
    if ((step + 1) % o.sync.every != 0) continue;
    double apart = 0;
    for (std::size_t i = 0; i < anchor.size(); ++i)
      for (std::size_t e = 0; e < anchor[i].size(); ++e) {
        double mean = 0;
        for (const PlainAdamW& worker : workers) mean += worker.w[i][e] / static_cast<double>(groups);
        for (const PlainAdamW& worker : workers) apart += std::pow(worker.w[i][e] - mean, 2);
        if (o.sync.outer == OuterStep::nesterov) {
          const double d = anchor[i][e] - mean;
          momentum[i][e] = o.sync.outer_momentum * momentum[i][e] + d;
          mean = anchor[i][e] - o.sync.outer_lr * (d + o.sync.outer_momentum * momentum[i][e]);
        }
        anchor[i][e] = mean;
        for (PlainAdamW& worker : workers) worker.w[i][e] = mean;
      }
    found.divergences.push_back(std::sqrt(apart / static_cast<double>(groups)));
  }
  found.weights = anchor;
  return found;
}

LocalTrajectory train_local_steps(const Replica::Options& o, Device device) {
  const std::int64_t steps = o.sync.every * ((kLocalSteps + o.sync.every - 1) / o.sync.every);
  const std::vector<LogicalTensor> names = logical_tensors(Model(o.spec, 1, o.T, DType::f64));
  LocalTrajectory found;
  std::mutex mutex;
  std::vector<PlainValues> groups(static_cast<std::size_t>(o.sync.groups(o.layout.dp)));
  for (PlainValues& one : groups)
    for (const LogicalTensor& name : names) one.emplace_back(static_cast<std::size_t>(name.elements()));
  run_ranks(static_cast<int>(o.layout.ranks()), [&](std::unique_ptr<Communicator> group) {
    RankDevice on(device, *group);
    Replica replica(o, on.ranks(), on.memory(), on.stream());
    replica.init_weights();
    replica.set_learning_rate(kLocalRate);
    for (std::int64_t step = 0; step < steps; ++step) {
      const TokenBatch all = local_batch(o, step);
      const auto part = [&, given = replica.given()](const std::vector<std::int32_t>& whole) {
        return std::span(whole).subspan(static_cast<std::size_t>(given.first * o.T),
                                        static_cast<std::size_t>(given.count * o.T));
      };
      const Replica::Result result = replica.step(part(all.tokens), part(all.targets));
      if (group->rank() == 0) found.losses.push_back(result.loss);
      if (group->rank() == 0 && result.divergence) found.divergences.push_back(*result.divergence);
    }
    const std::lock_guard lock(mutex);
    PlainValues& mine = groups[static_cast<std::size_t>(o.layout.dp_rank(group->rank()) / o.sync.together())];
    for (const Replica::Named& t : replica.tensors()) {
      const auto at = std::ranges::find(names, t.tensor.name, &LogicalTensor::name) - names.begin();
      if (t.counted && !t.runs.empty()) t.put(to_doubles(t.master, on.stream()), mine[static_cast<std::size_t>(at)]);
    }
  });
  for (const PlainValues& one : groups) EXPECT_TRUE(one == groups[0]) << "groups agree to the bit";
  found.weights = groups[0];
  return found;
}

}  // namespace lockstep::tests
