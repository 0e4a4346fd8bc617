// The norm of the gradient of all units over all ranks: the sum of squares of every logical element, each counted once.
#include "parallel/global_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "comm/ranks.h"
#include "kernels/norm_sum.h"
#include "parallel/mesh_groups.h"
#include "support/devices.h"

namespace lockstep::tests {
namespace {

constexpr std::int64_t kOwn = 700, kShared = 300;

// Element i of a tensor of a stage and of the tp rank whose it is; what all tp ranks have alike is part -1's.
double gradient_element(int stage, int part, std::int64_t i) {
  return std::ldexp(std::sin(static_cast<double>(1 + i * i % 1013 + 17 * stage + 5 * part)), static_cast<int>(i % 19));
}

// Gradients that are there already.
class Given final : public Gradients {
 public:
  explicit Given(std::vector<Tensor> units) : units_(std::move(units)) {}
  const std::vector<Tensor>& open(int, int) override { return units_; }
  bool adds(int) const override { return false; }
  void whole(int, int) override {}
  Tensor tied() override { return {}; }
  void wait() override {}
  Tensor reduced(int unit) const override { return units_[static_cast<std::size_t>(unit)]; }

 private:
  std::vector<Tensor> units_;
};

using Bins = std::vector<std::int64_t>;

// Every logical tensor by itself, one after the other.
Bins plain_bins(const LayoutSpec& layout) {
  CpuDevice cpu;
  Bins bins(kNormBins);
  bool adds = false;
  const auto add = [&](int stage, int part, std::int64_t elements) {
    Row row(DType::f32, elements, [&](std::int64_t i) { return gradient_element(stage, part, i); });
    norm_sum({.bins = Tensor(bins.data(), DType::i64, Device::cpu, {kNormBins}), .x = row, .accumulate = adds},
             cpu.stream());
    adds = true;
  };
  for (int stage = 0; stage < layout.pp; ++stage) {
    for (int part = 0; part < layout.tp; ++part) add(stage, part, kOwn);
    add(stage, -1, kShared);
  }
  return bins;
}

TEST(GlobalNorm, CountsEveryElementOnce) {
  for (const LayoutSpec& layout :
       {LayoutSpec{}, LayoutSpec{.dp = 3}, LayoutSpec{.dp = 3, .zero = 1}, LayoutSpec{.dp = 5, .zero = 3},
        LayoutSpec{.dp = 4, .zero = 2, .shard = 2}, LayoutSpec{.tp = 3}, LayoutSpec{.pp = 3},
        LayoutSpec{.dp = 3, .pp = 2, .tp = 2, .zero = 1}}) {
    const Bins want = plain_bins(layout);
    each_rank(static_cast<int>(layout.ranks()), [&](Communicator& world) {
      MeshGroups groups(world, layout);
      ZeroGroups replicas(groups.replicas(), layout);
      const int tp = groups.tensor().rank(), stage = groups.pipeline().rank();
      UnitLayout unit("unit");
      unit.add({.shape = {kOwn}, .pieces = {{{"own", {kOwn}}}}});
      ParameterPiece shared{{"shared", {kShared}}};
      shared.counted = tp == 0;
      unit.add({.shape = {kShared}, .pieces = {shared}});

      CpuDevice cpu;
      std::map<int, ZeroShard> storage;
      const Shard shard = replicas.shard();
      storage.try_emplace(0, unit,
                          ZeroShard::Options{.types = storage_types(Precision::fp32), .optimizer = {}, .shard = shard},
                          cpu.memory(), cpu.stream());
      Row flat(DType::f32, shard.padded(unit.owned()), [&](std::int64_t i) {
        const std::int64_t own = i - unit.offset(0), both = i - unit.offset(1);
        return own < kOwn                    ? gradient_element(stage, tp, own)
               : both >= 0 && both < kShared ? gradient_element(stage, -1, both)
                                             : 0.0;
      });
      const Given gradients({flat.part(shard.begin(unit.owned()), shard.elements(unit.owned()))});
      const GlobalNorm norm(storage, gradients, cpu.memory());
      for (int step = 0; step < 2; ++step) {
        const Tensor bins = norm.sum(replicas, groups.tensor(), groups.pipeline(), cpu.stream());
        const std::int64_t* got = bins.data<std::int64_t>();
        EXPECT_EQ(norm_total(std::span(got, kNormBins)), norm_total(want)) << "rank " << world.rank();
      }
    });
  }
}

}  // namespace
}  // namespace lockstep::tests
