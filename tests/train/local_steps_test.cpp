// Local steps against a slow, plain, serial model of them: one thread, no messages, loops over doubles. Of the program
// it uses the gradient of one rank alone, which other tests hold to references.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "checkpoint/hf_tensors.h"
#include "comm/meta/communicator.h"
#include "comm/recorder.h"
#include "comm/threads/run_ranks.h"
#include "kernels/cross_entropy.h"
#include "support/devices.h"
#include "support/host_run.h"
#include "support/plain_adamw.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

using LocalValues = PlainValues;

constexpr std::int64_t kLocalSteps = 20, kLocalT = 9;
constexpr double kLocalRate = 3e-3;

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

struct LocalTrajectory {
  std::vector<double> losses;
  LocalValues weights;
};

void set_local_weights(HostRun& run, const LocalValues& values) {
  std::vector<ConstTensor> tensors;
  for (const auto& one : values) tensors.emplace_back(one.data(), DType::f64, Device::cpu, Shape{std::ssize(one)});
  run.replica->load(tensors);
}

LocalValues local_values_of(HostRun& run, Tensor Replica::Named::*which) {
  LocalValues all;
  for (const Replica::Named& t : run.replica->tensors()) {
    all.emplace_back(static_cast<std::size_t>(t.tensor.elements()));
    t.put(to_doubles(t.*which, *run.stream), all.back());
  }
  return all;
}

// The serial model: `groups` workers, one after the other.
LocalTrajectory simulate_local_steps(const Replica::Options& o, std::int64_t groups) {
  const std::int64_t together = o.layout.dp / groups;
  Replica::Options alone = o;
  alone.layout = {};
  alone.sync = {};
  HostRun first(alone);
  first.replica->init_weights();
  const std::vector<LogicalTensor> names = logical_tensors(first.replica->model());
  const LocalValues start = local_values_of(first, &Replica::Named::master);
  LocalValues zero = start;
  for (auto& tensor : zero) std::ranges::fill(tensor, 0.0);
  std::vector<PlainAdamW> workers(static_cast<std::size_t>(groups), PlainAdamW(start));
  LocalValues anchor = start, momentum = zero;
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
    for (std::size_t i = 0; i < anchor.size(); ++i)
      for (std::size_t e = 0; e < anchor[i].size(); ++e) {
        double mean = 0;
        for (const PlainAdamW& worker : workers) mean += worker.w[i][e] / static_cast<double>(groups);
        if (o.sync.outer == OuterStep::nesterov) {
          const double d = anchor[i][e] - mean;
          momentum[i][e] = o.sync.outer_momentum * momentum[i][e] + d;
          mean = anchor[i][e] - o.sync.outer_lr * (d + o.sync.outer_momentum * momentum[i][e]);
        }
        anchor[i][e] = mean;
        for (PlainAdamW& worker : workers) worker.w[i][e] = mean;
      }
  }
  found.weights = anchor;
  return found;
}

// The program: ranks as threads. Every group ends with the same bits.
LocalTrajectory train_local_steps(const Replica::Options& o) {
  const std::int64_t steps = o.sync.every * ((kLocalSteps + o.sync.every - 1) / o.sync.every);
  const std::vector<LogicalTensor> names = logical_tensors(Model(o.spec, 1, o.T, DType::f64));
  LocalTrajectory found;
  std::mutex mutex;
  std::vector<LocalValues> groups(static_cast<std::size_t>(o.sync.groups(o.layout.dp)));
  for (LocalValues& one : groups)
    for (const LogicalTensor& name : names) one.emplace_back(static_cast<std::size_t>(name.elements()));
  run_ranks(static_cast<int>(o.layout.ranks()), [&](std::unique_ptr<Communicator> group) {
    CpuDevice cpu;
    Replica replica(o, {*group, *group}, cpu.memory(), cpu.stream());
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
    }
    const std::lock_guard lock(mutex);
    LocalValues& mine = groups[static_cast<std::size_t>(o.layout.dp_rank(group->rank()) / o.sync.together())];
    for (const Replica::Named& t : replica.tensors()) {
      const auto at = std::ranges::find(names, t.tensor.name, &LogicalTensor::name) - names.begin();
      if (t.counted && !t.runs.empty()) t.put(to_doubles(t.master, cpu.stream()), mine[static_cast<std::size_t>(at)]);
    }
  });
  for (const LocalValues& one : groups) EXPECT_TRUE(one == groups[0]) << "groups agree to the bit";
  found.weights = groups[0];
  return found;
}

void expect_follows_serial_model(const Replica::Options& o) {
  const std::string what = fmt::format("{}, every {} {}, groups {}", to_text(o.layout), o.sync.every,
                                       name_of(o.sync.outer), o.sync.groups(o.layout.dp));
  const LocalTrajectory one = simulate_local_steps(o, o.sync.groups(o.layout.dp)), many = train_local_steps(o);
  ASSERT_EQ(one.losses.size(), many.losses.size()) << what;
  for (std::size_t step = 0; step < one.losses.size(); ++step)
    EXPECT_NEAR(many.losses[step], one.losses[step], 1e-11 * one.losses[step]) << what << ", step " << step;
  double error = 0, size = 0;
  for (std::size_t i = 0; i < one.weights.size(); ++i)
    for (std::size_t e = 0; e < one.weights[i].size(); ++e) {
      error += std::pow(many.weights[i][e] - one.weights[i][e], 2);
      size += std::pow(one.weights[i][e], 2);
    }
  EXPECT_LE(std::sqrt(error), 1e-11 * std::sqrt(size)) << what;
}

SyncSpec local_sync(std::int64_t every, OuterStep outer) {
  SyncSpec sync;
  sync.kind = SyncKind::partial;
  sync.every = every;
  sync.outer = outer;
  return sync;
}

class LocalStepsOfFamilies : public ::testing::TestWithParam<NamedSpec> {};

TEST_P(LocalStepsOfFamilies, AreTheSerialModels) {
  for (const auto& [workers, micro, every, outer] : {std::tuple{1, 2, 5, OuterStep::nesterov},
                                                     {2, 1, 4, OuterStep::average},
                                                     {3, 2, 5, OuterStep::nesterov},
                                                     {4, 3, 10, OuterStep::average},
                                                     {5, 1, 1, OuterStep::average},
                                                     {5, 1, 7, OuterStep::nesterov}}) {
    const LayoutSpec layout{.dp = workers, .micro = micro, .uneven = Switch::on};
    expect_follows_serial_model(
        local_options(GetParam().spec, layout, local_sync(every, outer), 2 * workers * micro + micro));
  }
}

INSTANTIATE_TEST_SUITE_P(All, LocalStepsOfFamilies, ::testing::ValuesIn(tiny_specs()),
                         [](const auto& info) { return info.param.name; });

TEST(LocalStepsOfMany, AreTheSerialModelsWithUpToEightWorkers) {
  const ModelSpec spec = tiny_specs()[0].spec;
  for (const int workers : {6, 7, 8})
    for (const OuterStep outer : {OuterStep::average, OuterStep::nesterov})
      expect_follows_serial_model(local_options(spec, {.dp = workers, .micro = 2}, local_sync(4, outer), 2 * workers));
}

// Tensor, sequence, context and pipeline parallel inside of a replica; a tied weight on two stages.
TEST(LocalStepsOfMany, AreTheSerialModelsBesideEveryOtherAxis) {
  for (const NamedSpec& model : cut_specs())
    for (const LayoutSpec& layout : {LayoutSpec{.dp = 3, .tp = 2, .micro = 2}, LayoutSpec{.dp = 2, .pp = 2, .micro = 3},
                                     LayoutSpec{.dp = 2, .pp = 2, .tp = 2, .micro = 2}}) {
      if (!heads_divide(model.spec.heads, model.spec.kv_heads, layout.tp)) continue;
      LayoutSpec chosen = layout;
      chosen.sp = Switch::off;
      expect_follows_serial_model(
          local_options(model.spec, chosen, local_sync(5, OuterStep::nesterov), layout.dp * layout.micro));
    }
}

// Synchronous within a group, local steps across groups.
TEST(LocalStepsOfMany, OfGroupsAreTheSerialModels) {
  const ModelSpec spec = tiny_specs()[0].spec;
  for (const auto& [dp, group] : {std::pair{4, 2}, {6, 3}, {6, 2}, {6, 6}})
    for (const OuterStep outer : {OuterStep::average, OuterStep::nesterov}) {
      SyncSpec sync = local_sync(5, outer);
      sync.kind = SyncKind::mixed;
      sync.group = group;
      expect_follows_serial_model(local_options(spec, {.dp = dp, .micro = 2}, sync, 2 * dp));
    }
}

// Each group shards its own state.
TEST(LocalStepsOfMany, OfGroupsWithZeroAreTheSerialModels) {
  for (const std::int64_t zero : {1, 2, 3})
    for (const OuterStep outer : {OuterStep::average, OuterStep::nesterov}) {
      SyncSpec sync = local_sync(5, outer);
      sync.kind = SyncKind::mixed;
      sync.group = 3;
      const GradSync when = LayoutSpec::usual_sync(zero);
      const LayoutSpec layout{.dp = 6, .micro = 2, .zero = zero, .grad_sync = when, .shard = 3};
      expect_follows_serial_model(local_options(tiny_specs()[0].spec, layout, sync, 12));
    }
}

// Elements of tensors that a rank sends in `steps` steps, set-up left out.
template <class Ranks>
std::int64_t local_steps_send(const Replica::Options& o, std::int64_t steps, Ranks ranks, Memory& memory,
                              Stream& stream, std::int64_t& stored) {
  CommLog log;
  Recorder recorded(std::move(ranks), log);
  Replica replica(o, {recorded, recorded}, memory, stream);
  replica.init_weights();
  const auto of_tensors = [&] {
    std::int64_t sent = 0;
    for (const auto& [key, total] : log.totals())
      if (size_of(std::get<DType>(key)) < 8) sent += total.sent;
    return sent;
  };
  const std::int64_t before = of_tensors();
  for (std::int64_t step = 0; step < steps; ++step) {
    const TokenBatch all = local_batch(o, step);
    const auto part = [&, given = replica.given()](const std::vector<std::int32_t>& whole) {
      return std::span(whole).subspan(static_cast<std::size_t>(given.first * o.T),
                                      static_cast<std::size_t>(given.count * o.T));
    };
    replica.step(part(all.tokens), part(all.targets));
  }
  stored = 0;
  for (int u = 0; u < replica.model().units(); ++u) stored += replica.model().unit(u).layout().owned();
  return of_tensors() - before;
}

// An all-reduce of Ψ every k steps: 1/k of ddp's. fp32, so that numbers of 8 bytes are told apart.
TEST(LocalStepsMessages, AreOneOfEveryKOfDdps) {
  for (const int workers : {2, 3, 5, 8})
    for (const OuterStep outer : {OuterStep::average, OuterStep::nesterov}) {
      constexpr std::int64_t kEvery = 4, kSteps = 8;
      Replica::Options local =
          local_options(tiny_specs()[0].spec, {.dp = workers, .micro = 1}, local_sync(kEvery, outer), workers);
      local.precision = {};
      Replica::Options ddp = local;
      ddp.sync = {};
      const auto of_all = [&](const Replica::Options& o) {
        std::int64_t all = 0, stored = 0;
        std::mutex mutex;
        run_ranks(workers, [&](std::unique_ptr<Communicator> group) {
          const int rank = group->rank();
          CpuDevice cpu;
          std::int64_t psi = 0, counted_psi = 0;
          const std::int64_t sent = local_steps_send(o, kSteps, std::move(group), cpu.memory(), cpu.stream(), psi);
          MetaDevice meta;
          EXPECT_EQ(local_steps_send(o, kSteps, std::make_unique<meta::Communicator>(rank, workers), meta.memory(),
                                     meta.stream(), counted_psi),
                    sent)
              << "rank " << rank << " of " << workers;
          const std::lock_guard lock(mutex);
          all += sent;
          stored = psi;
        });
        EXPECT_EQ(all, 2 * stored * (workers - 1) * (o.sync.takes_local_steps() ? kSteps / kEvery : kSteps));
        return all;
      };
      EXPECT_EQ(of_all(local) * kEvery, of_all(ddp)) << workers;
    }
}

}  // namespace
}  // namespace lockstep::tests
