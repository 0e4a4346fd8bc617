// Who holds what of a unit: shards cover every element of every logical tensor once, and hold what the type says.
#include "parallel/zero_shards.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/step_control.h"
#include "support/step_controls.h"
#include "support/tensor_box.h"

namespace lockstep::tests {
namespace {

// A matrix of two logical tensors (fused), a vector, and a tied parameter that is nobody's here.
UnitLayout unit() {
  UnitLayout layout("unit");
  layout.add({.shape = {5, 100}, .pieces = {{{"a", {3, 100}}}, {{"b", {2, 100}}}}});
  layout.add({.shape = {300}, .pieces = {{{"c", {300}}}}});
  layout.add({.shape = {40}, .tied = true});
  return layout;
}

TEST(ZeroShards, HoldEveryElementOfEveryTensorOnce) {
  const UnitLayout layout = unit();
  for (const std::int64_t ranks : {1, 2, 3, 5, 7}) {
    std::map<std::string, std::vector<int>> held;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      CpuDevice cpu;
      const Shard shard{.index = rank, .count = ranks};
      const ZeroShard here(layout, {.types = storage_types(Precision::fp32), .optimizer = {}, .shard = shard},
                           cpu.memory(), cpu.stream());
      // Each element of the flat buffer is numbered: a piece must find its own.
      for (std::int64_t i = 0; i < here.own_master().elements(); ++i)
        here.own_master().data<float>()[i] = static_cast<float>(shard.begin(layout.owned()) + i);
      here.each_piece([&](const ZeroShard::Piece& piece) {
        const std::int64_t base = piece.tensor.name == "a"   ? layout.offset(0)
                                  : piece.tensor.name == "b" ? layout.offset(0) + 300
                                                             : layout.offset(1);
        std::vector<int>& counts = held[piece.tensor.name];
        counts.resize(static_cast<std::size_t>(piece.tensor.elements()));
        for (const lockstep::Run& run : piece.runs)
          for (std::int64_t row = 0; row < run.rows(); ++row)
            for (std::int64_t i = 0; i < run.row(); ++i) {
              const std::int64_t there = run.there.begin + row * run.there.pitch + i;
              const std::int64_t at = run.here.begin + row * run.here.pitch + i;
              ASSERT_EQ(piece.of(here.own_master()).data<float>()[at], static_cast<float>(base + there));
              ++counts[static_cast<std::size_t>(there)];
            }
      });
    }
    ASSERT_EQ(held.size(), 3u);
    for (const auto& [name, counts] : held)
      for (std::size_t i = 0; i < counts.size(); ++i) ASSERT_EQ(counts[i], 1) << name << " " << i << " of " << ranks;
  }
}

// Decay ends, and rounding by chance draws, where the whole unit's would: two updates of each shard are those of one
// rank.
TEST(ZeroShards, UpdateTheirElementsAsOneRankDoes) {
  const UnitLayout layout = unit();
  OptimizerSpec optimizer;
  optimizer.weight_decay = 0.5;
  const StorageTypes types = storage_types({Precision::bf16, StateType::full, StateType::bf16});
  std::vector<std::vector<double>> one_rank(static_cast<std::size_t>(layout.owned()));
  for (const std::int64_t ranks : {1, 2, 4})
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      TensorBox box;
      CpuDevice cpu;
      const Shard shard{.index = rank, .count = ranks};
      ZeroShard here(layout, {.types = types, .optimizer = optimizer, .shard = shard}, cpu.memory(), cpu.stream());
      const std::int64_t first = shard.begin(layout.owned()), n = here.own_master().elements();
      const Tensor gradient = box.make(types.gradient, {n});
      for (std::int64_t i = 0; i < n; ++i) {
        here.own_master().data<float>()[i] = 1;
        gradient.data<float>()[i] = static_cast<float>(std::sin(static_cast<double>(first + i)));
      }
      for (auto& [name, state] : here.optimizer_state())
        std::memset(state.raw(), 0, static_cast<std::size_t>(state.bytes()));
      for (const int step : {1, 2}) {
        const Tensor control =
            box.make(DType::f64, {kStepControls}, step_controls({.rate = 0.1, .step = step, .scale = 0.5}));
        here.update(gradient, control, cpu.stream());
      }
      for (std::int64_t i = 0; i < n; ++i) {
        std::vector<double> now{here.own_master().data<float>()[i]};
        for (const auto& [name, state] : here.optimizer_state()) now.push_back(TensorBox::read(state, i));
        if (ranks == 1) one_rank[static_cast<std::size_t>(i)] = now;
        ASSERT_EQ(now, one_rank[static_cast<std::size_t>(first + i)]) << first + i << " of " << ranks;
      }
    }
}

TEST(ZeroShards, TakeTheBytesOfTheirShard) {
  const UnitLayout layout = unit();  // 512 + 512 elements, padding included
  ASSERT_EQ(layout.owned(), 1024);
  for (const bool whole_weights : {true, false})
    for (const bool updates : {true, false}) {
      Ledger ledger;
      const auto memory = make_memory(Device::cpu, ledger);
      CpuDevice cpu;
      const ZeroShard here(layout,
                           {.types = storage_types(Precision::bf16),
                            .optimizer = {},
                            .updates = updates,
                            .shard = {.index = 1, .count = 3},
                            .whole_weights = whole_weights},
                           *memory, cpu.stream());
      // A shard is a third of 1024, rounded up to a multiple of 256: 512.
      EXPECT_EQ(ledger.current(Tag::parameter), (whole_weights ? 3 : 1) * 512 * 2);
      EXPECT_EQ(ledger.current(Tag::optimizer), updates ? 512 * (4 + 4 + 4) : 0);
      EXPECT_EQ(here.updates(), updates);
      EXPECT_EQ(here.own_weight().elements(), 512);
      EXPECT_EQ(here.flat_weight().elements(), whole_weights ? 3 * 512 : 512);
    }
}

TEST(ZeroShards, PublishTheirOwnMastersAlone) {
  const UnitLayout layout = unit();
  CpuDevice cpu;
  ZeroShard here(layout, {.types = storage_types(Precision::bf16), .optimizer = {}, .shard = {.index = 1, .count = 3}},
                 cpu.memory(), cpu.stream());
  for (std::int64_t i = 0; i < 512; ++i) here.own_master().data<float>()[i] = static_cast<float>(i % 64 + 1);
  here.publish(cpu.stream());
  for (std::int64_t i = 0; i < 3 * 512; ++i) {
    ASSERT_EQ(TensorBox::read(here.flat_weight(), i), i / 512 == 1 ? static_cast<double>(i % 64 + 1) : 0) << i;
  }
}

// Plain SGD: master -= lr · gradient, in the weights of this shard and no other.
TEST(ZeroShards, UpdateTheirOwnWeightsAlone) {
  const UnitLayout layout = unit();
  CpuDevice cpu;
  OptimizerSpec sgd;
  sgd.kind = OptimizerKind::sgd;
  sgd.weight_decay = 0;
  sgd.momentum = 0;
  ZeroShard here(layout, {.types = storage_types(Precision::fp32), .optimizer = sgd, .shard = {.index = 0, .count = 3}},
                 cpu.memory(), cpu.stream());
  std::vector<float> gradient(512);
  for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = static_cast<float>(i % 7);
  double control[kStepControls] = {};
  control[kLearningRate] = 0.5;
  control[kStep] = control[kGradientScale] = control[kFinite] = 1;
  here.update(ConstTensor(gradient.data(), DType::f32, Device::cpu, {512}),
              ConstTensor(control, DType::f64, Device::cpu, {kStepControls}), cpu.stream());
  for (std::int64_t i = 0; i < 3 * 512; ++i)
    ASSERT_EQ(here.flat_weight().data<float>()[i], i < 512 ? -0.5F * static_cast<float>(i % 7) : 0) << i;
}

}  // namespace
}  // namespace lockstep::tests
