// State that is packed under a mask: an update makes of what stays, to the bit, what it makes of whole state, and of
// the rest nothing.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "checkpoint/convert.h"
#include "kernels/elementwise.h"
#include "kernels/step_control.h"
#include "parallel/zero_shards.h"
#include "support/devices.h"
#include "tensor/transfer.h"

namespace lockstep::tests {
namespace {

// More than one window, and odd.
UnitLayout packed_unit() {
  UnitLayout unit("block");
  unit.add({.shape = {301, 260}, .pieces = {{"matrix", {301, 260}}}});
  unit.add({.shape = {77}, .pieces = {{"norm", {77}}}});
  return unit;
}

Survivors random_survivors(const UnitLayout& unit, const Survivors& among, unsigned one_of) {
  std::mt19937 random(one_of);
  MaskWords words(static_cast<std::size_t>(mask_words(unit.owned())));
  for (std::int64_t i = 0; i < unit.owned(); ++i) {
    const bool vector = i >= unit.offset(1) && i < unit.offset(1) + 77, matrix = i < 301 * 260;
    const auto word = static_cast<std::size_t>(i / 64);
    const bool was = among.words.empty() || (among.words[word] >> (i % 64) & 1) != 0;
    if (was && (vector || (matrix && random() % one_of != 0))) words[word] |= std::uint64_t{1} << (i % 64);
  }
  return survivors_of(words, 0, unit.owned(), unit.decayed());
}

std::vector<double> doubles(const Tensor& t, Stream& stream) { return to_doubles(t, stream); }

TEST(PackedState, IsUpdatedAsWholeStateIs) {
  const UnitLayout unit = packed_unit();
  for (const Precision precision : {Precision::fp64, Precision::fp32, Precision::bf16, Precision::fp16})
    for (const OptimizerSpec& optimizer :
         {OptimizerSpec{.kind = OptimizerKind::adamw}, OptimizerSpec{.kind = OptimizerKind::sgd, .momentum = 0.9},
          OptimizerSpec{.kind = OptimizerKind::sgd, .momentum = 0}}) {
      SCOPED_TRACE(fmt::format("{} {} {}", name_of(precision), static_cast<int>(optimizer.kind), optimizer.momentum));
      CpuDevice cpu;
      const StorageTypes types = storage_types(precision);
      const ZeroShard::Options options{.types = types, .optimizer = optimizer};
      ZeroShard packed(unit, options, cpu.memory(), cpu.stream()), whole(unit, options, cpu.memory(), cpu.stream());
      const ZeroShard::Room room(cpu.memory(), accumulator_of(types.compute));
      const std::int64_t n = unit.owned();
      const Buffer gradients = cpu.memory().allocate(n * size_of(types.gradient), Tag::gradient);
      const Tensor gradient = view(gradients, types.gradient, {n});
      const Buffer controls = cpu.memory().allocate(kStepControls * 8, Tag::workspace);
      double control[kStepControls] = {};
      control[kLearningRate] = 0.01;
      control[kGradientScale] = 0.5;
      control[kFirstCorrection] = control[kSecondCorrection] = 0.7;
      std::mt19937 random(3);
      std::normal_distribution<double> normal;
      const auto set = [&](const Tensor& t) {
        std::vector<double> values(static_cast<std::size_t>(t.elements()));
        for (double& v : values) v = normal(random);
        upload_floats(t, reinterpret_cast<const char*>(values.data()), DType::f64, cpu.stream());
        return values;
      };
      const std::vector<double> start = set(packed.own_master());
      upload_floats(whole.own_master(), reinterpret_cast<const char*>(start.data()), DType::f64, cpu.stream());
      packed.publish(cpu.stream());
      whole.publish(cpu.stream());
      Survivors stay;
      for (int step = 0; step < 9; ++step) {
        if (step == 2 || step == 5) {
          stay = random_survivors(unit, stay, step == 2 ? 5 : 2);
          packed.set_mask(stay, room, cpu.memory(), cpu.stream());
          // The plain way: zeros, in place.
          const Buffer words = cpu.memory().allocate(std::ssize(stay.words) * 8, Tag::workspace);
          const Tensor mask = view(words, DType::i64, {std::ssize(stay.words)});
          upload(mask, stay.words.data(), cpu.stream());
          keep({.dense = whole.own_weight(), .mask = mask}, cpu.stream());
          keep({.dense = whole.own_master(), .mask = mask}, cpu.stream());
          for (const auto& [name, state] : whole.optimizer_state()) keep({.dense = state, .mask = mask}, cpu.stream());
        }
        const std::vector<double> values = set(gradient);
        std::vector<double> masked = values;
        for (std::int64_t i = 0; i < n && !stay.words.empty(); ++i)
          if ((stay.words[static_cast<std::size_t>(i / 64)] >> (i % 64) & 1) == 0)
            masked[static_cast<std::size_t>(i)] = 0;
        control[kFinite] = step != 4 && step != 7;  // steps that update nothing
        upload(view(controls, DType::f64, {kStepControls}), control, cpu.stream());
        const Tensor told = view(controls, DType::f64, {kStepControls});
        packed.update(gradient, told, room, cpu.stream());
        upload_floats(gradient, reinterpret_cast<const char*>(masked.data()), DType::f64, cpu.stream());
        whole.update(gradient, told, cpu.stream());
        ASSERT_EQ(doubles(packed.own_weight(), cpu.stream()), doubles(whole.own_weight(), cpu.stream())) << step;
        if (step < 2) continue;
        ASSERT_TRUE(packed.packed());
        const auto same = [&](const Tensor& short_one, const Tensor& long_one) {
          const std::vector<double> all = doubles(long_one, cpu.stream());
          std::vector<double> kept;
          for (std::int64_t i = 0; i < n; ++i)
            if ((stay.words[static_cast<std::size_t>(i / 64)] >> (i % 64) & 1) != 0)
              kept.push_back(all[static_cast<std::size_t>(i)]);
          ASSERT_EQ(std::ssize(kept), stay.kept);
          ASSERT_EQ(doubles(short_one.slice(0, 0, stay.kept), cpu.stream()), kept) << step;
        };
        if (packed.masters_apart()) same(packed.own_master(), whole.own_master());
        const auto mine = packed.optimizer_state(), theirs = whole.optimizer_state();
        for (std::size_t i = 0; i < mine.size(); ++i) same(mine[i].second, theirs[i].second);
      }
    }
}

}  // namespace
}  // namespace lockstep::tests
