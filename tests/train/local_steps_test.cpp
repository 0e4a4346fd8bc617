// Local steps against a slow, plain, serial model of them: one thread, no messages, loops over doubles. Of the program
// it uses the gradient of one rank alone, which other tests hold to references.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "comm/meta/communicator.h"
#include "comm/recorder.h"
#include "comm/threads/run_ranks.h"
#include "support/devices.h"
#include "support/serial_local_steps.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

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
  ASSERT_EQ(many.divergences.size(), one.divergences.size()) << what;
  for (std::size_t i = 0; i < one.divergences.size(); ++i)  // a difference of two sums of squares
    EXPECT_NEAR(many.divergences[i], one.divergences[i], 1e-6 * one.divergences[i] + 1e-7 * std::sqrt(size)) << what;
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
