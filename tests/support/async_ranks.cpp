#include "support/async_ranks.h"

#include <gtest/gtest.h>

#include <mutex>
#include <random>

#include "checkpoint/hf_tensors.h"
#include "comm/threads/run_ranks.h"
#include "parallel/arrival_order.h"
#include "support/rank_device.h"

namespace lockstep::tests {

namespace {

TokenBatch async_batch(const Replica::Options& o, std::int64_t step) {
  return random_batch(o, static_cast<unsigned>(step) + 300);
}

// Samples from number `first` on, all of one step.
TokenBatch async_samples(const Replica::Options& o, std::int64_t first, std::int64_t count) {
  const TokenBatch all = async_batch(o, first / o.B);
  const auto from = static_cast<std::ptrdiff_t>(first % o.B * o.T), n = static_cast<std::ptrdiff_t>(count * o.T);
  return {.tokens = {all.tokens.begin() + from, all.tokens.begin() + from + n},
          .targets = {all.targets.begin() + from, all.targets.begin() + from + n}};
}

double rate_of(const AsyncTraining& training, std::int64_t step) {
  return training.rate ? training.rate(step) : kAsyncRate;
}

}  // namespace

LayoutSpec async_layout(std::int64_t workers, std::int64_t servers, std::int64_t micro) {
  return {.dp = workers, .micro = micro, .dp_kind = DpKind::server, .servers = servers};
}

SyncSpec async_sync(std::int64_t bound) {
  SyncSpec sync;
  sync.kind = SyncKind::async;
  sync.staleness = bound;
  return sync;
}

Replica::Options async_options(const ModelSpec& spec, const LayoutSpec& layout, std::int64_t bound, std::int64_t each) {
  Replica::Options o{.spec = spec,
                     .B = layout.dp * each,
                     .T = 9,
                     .layout = layout,
                     .precision = Precision::fp64,
                     .sync = async_sync(bound),
                     .seed = 5};
  o.spec.dropout = o.spec.attention_dropout = 0;  // the gradient of some samples alone would draw other masks
  o.optimizer.clip = 0.1;                         // active
  o.optimizer.weight_decay = 0.05;
  return o;
}

AsyncLearned train_async(const Replica::Options& o, const AsyncTraining& training) {
  AsyncLearned learned;
  const std::vector<LogicalTensor> names = logical_tensors(Model(o.spec, 1, o.T, DType::f64));
  for (const LogicalTensor& name : names) learned.weights.emplace_back(static_cast<std::size_t>(name.elements()));
  std::mutex mutex;
  run_ranks(static_cast<int>(o.layout.ranks()), [&](std::unique_ptr<Communicator> group) {
    const int rank = group->rank();
    RankDevice on(training.device, *group);
    Replica replica(o, on.ranks(), on.memory(), on.stream());
    replica.init_weights();
    const auto line = static_cast<int>(o.layout.line());
    replica.async().use(
        {.read =
             [&](std::int64_t first, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
               const std::int64_t count = std::ssize(tokens) / o.T;
               if (training.before_ticket && rank % line == 0) training.before_ticket(rank / line, first / count);
               const TokenBatch batch = async_samples(o, first, count);
               std::ranges::copy(batch.tokens, tokens.begin());
               std::ranges::copy(batch.targets, targets.begin());
             },
         .meets =
             [&](std::int64_t steps) { return steps == training.steps || (training.meets && training.meets(steps)); },
         .record = training.record});
    for (std::int64_t step = 0; step < training.steps; ++step) {
      replica.set_learning_rate(rate_of(training, step));
      replica.begin_step(step * o.B);
      const Replica::Result result = replica.finish_step();
      EXPECT_TRUE(result.updated);
      if (rank != 0) continue;
      learned.losses.push_back(result.loss);
      learned.arrivals.insert(learned.arrivals.end(), result.arrivals.begin(), result.arrivals.end());
    }
    replica.settle();
    EXPECT_EQ(replica.steps_done(), training.steps * o.layout.dp);
    const std::lock_guard lock(mutex);
    for (const Replica::Named& t : replica.tensors()) {
      const auto at = std::ranges::find(names, t.tensor.name, &LogicalTensor::name) - names.begin();
      if (o.layout.serves(rank) && t.counted && !t.runs.empty())
        t.put(to_doubles(t.master, on.stream()), learned.weights[static_cast<std::size_t>(at)]);
    }
  });
  return learned;
}

AsyncLearned simulate_async(const Replica::Options& o, const AsyncTraining& training,
                            const std::vector<Arrival>& record) {
  Replica::Options alone = o;
  alone.layout = {};
  alone.sync = {};
  alone.B = o.B / o.layout.dp;
  HostRun run(alone);
  run.replica->init_weights();
  const std::vector<LogicalTensor> names = logical_tensors(run.replica->model());
  const auto values_of = [&](Tensor Replica::Named::*which) {
    PlainValues all;
    for (const Replica::Named& t : run.replica->tensors()) {
      all.emplace_back(static_cast<std::size_t>(t.tensor.elements()));
      t.put(to_doubles(t.*which, *run.stream), all.back());
    }
    return all;
  };
  PlainAdamW server(values_of(&Replica::Named::master));
  std::vector<PlainValues> versions{server.w};
  AsyncLearned learned;
  double losses = 0, targets = 0;
  for (const Arrival& one : record) {
    std::vector<ConstTensor> tensors;
    for (const auto& values : versions.at(static_cast<std::size_t>(one.version)))
      tensors.emplace_back(values.data(), DType::f64, Device::cpu, Shape{std::ssize(values)});
    run.replica->load(tensors);
    const TokenBatch batch = async_samples(o, one.ticket * alone.B, alone.B);
    const double loss = run.replica->compute_gradients(batch.tokens, batch.targets);
    const auto counted = static_cast<double>(std::ssize(batch.targets) - std::ranges::count(batch.targets, -1));
    losses += loss * counted;
    targets += counted;
    server.update(values_of(&Replica::Named::gradient), o.optimizer, rate_of(training, one.update / o.layout.dp),
                  one.update + 1, names);
    versions.push_back(server.w);
    if ((one.update + 1) % o.layout.dp == 0) {
      learned.losses.push_back(losses / targets);
      losses = targets = 0;
    }
  }
  learned.weights = server.w;
  learned.arrivals = record;
  return learned;
}

std::vector<double> synchronous_losses(const Replica::Options& o, std::int64_t steps) {
  HostRun run(o);
  run.replica->init_weights();
  run.replica->set_learning_rate(0);
  std::vector<double> losses;
  for (std::int64_t step = 0; step < steps; ++step) {
    const TokenBatch batch = async_batch(o, step);
    losses.push_back(run.replica->step(batch.tokens, batch.targets).loss);
  }
  return losses;
}

std::vector<Arrival> random_record(int workers, std::int64_t steps, std::int64_t bound, unsigned seed,
                                   const std::function<bool(std::int64_t steps)>& meets) {
  std::mt19937 random(seed);
  ArrivalOrder order(workers, bound);
  order.start(0);
  std::vector<Arrival> record;
  std::vector<int> computing;
  const auto end = [&] {
    std::int64_t at = std::ssize(record) / workers + 1;
    while (at < steps && !(meets && meets(at))) ++at;
    return at * workers;
  };
  while (std::ssize(record) < steps * workers) {
    while (const auto begun = order.begin(end())) computing.push_back(begun->worker);
    if (const auto next = order.apply()) {
      record.push_back(*next);
      continue;
    }
    // Squared, so that some are often passed over.
    const double at = std::pow(static_cast<double>(random()) / 4294967296.0, 2);
    const auto which = static_cast<std::ptrdiff_t>(at * static_cast<double>(computing.size()));
    order.arrive(computing[static_cast<std::size_t>(which)]);
    computing.erase(computing.begin() + which);
  }
  return record;
}

void expect_close(const AsyncLearned& many, const AsyncLearned& one, double tolerance, const std::string& what) {
  ASSERT_EQ(many.losses.size(), one.losses.size()) << what;
  for (std::size_t step = 0; step < one.losses.size(); ++step)
    EXPECT_NEAR(many.losses[step], one.losses[step], tolerance * one.losses[step]) << what << ", step " << step;
  double error = 0, size = 0;
  for (std::size_t i = 0; i < one.weights.size(); ++i)
    for (std::size_t e = 0; e < one.weights[i].size(); ++e) {
      error += std::pow(many.weights[i][e] - one.weights[i][e], 2);
      size += std::pow(one.weights[i][e], 2);
    }
  EXPECT_LE(std::sqrt(error), tolerance * std::sqrt(size)) << what;
}

void expect_same_bits(const AsyncLearned& a, const AsyncLearned& b, const std::string& what) {
  EXPECT_TRUE(a.losses == b.losses) << what;
  EXPECT_TRUE(a.weights == b.weights) << what;
  EXPECT_TRUE(a.arrivals == b.arrivals) << what;
}

}  // namespace lockstep::tests
