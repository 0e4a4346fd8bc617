// ZeRO's gradients: summed over ranks after every micro-batch, of which each rank keeps its shard, added up in order.
#include "parallel/zero_gradients.h"

#include <gtest/gtest.h>

#include "support/devices.h"
#include "support/plain_units.h"

namespace lockstep::tests {
namespace {

TEST(ZeroGradients, KeepTheirShardOfTheSumsOverRanksAndMicroBatches) {
  const PlainUnits units({{700, 3}, {100}, {513, 256}}, true);
  const std::vector<Action> actions = serial_step(units.shape(3, true));
  struct Case {
    int ranks;
    LayoutSpec layout;
  };
  for (const Case& c : {Case{3, {.dp = 3, .zero = 2}},
                        {5, {.dp = 5, .zero = 2}},
                        {6, {.dp = 6, .zero = 2, .shard = 3}},
                        {3, {.dp = 3, .zero = 1, .grad_sync = GradSync::micro}},
                        {3, {.dp = 3, .grad_sync = GradSync::micro}}})
    for (const bool overlap : {false, true})
      each_rank(c.ranks, [&](Communicator& all) {
        CpuDevice cpu;
        ZeroGroups groups(all, c.layout);
        ZeroGradients gradients({.layouts = units.layouts(),
                                 .tie = units.tie(),
                                 .actions = actions,
                                 .dtype = DType::f32,
                                 .overlap = overlap},
                                groups, cpu.memory(), cpu.stream());
        for (int step = 0; step < 2; ++step) {
          units.run(gradients, actions, all.rank());
          expect_plain_sums(gradients, units, groups, 3);
        }
      });
}

// Of all units, two are whole at a time; what is kept is 1/N of each.
TEST(ZeroGradients, HoldTwoUnitsWholeAndAShardOfEach) {
  constexpr std::int64_t kElements = 3 * 1024;
  const PlainUnits units({{kElements}, {kElements}, {kElements}, {kElements}, {kElements}});
  const std::vector<Action> actions = serial_step(units.shape(2, true));
  each_rank(3, [&](Communicator& all) {
    Ledger ledger;
    const auto memory = make_memory(Device::cpu, ledger);
    CpuDevice cpu;
    ZeroGroups groups(all, {.dp = 3, .zero = 2});
    ZeroGradients gradients({.layouts = units.layouts(), .actions = actions, .dtype = DType::f32}, groups, *memory,
                            cpu.stream());
    EXPECT_EQ(ledger.peak(Tag::communication), 2 * kElements * 4);
    EXPECT_EQ(ledger.peak(Tag::gradient), 5 * kElements * 4 / 3);
  });
}

// Of units that are summed in one call, two calls' are whole at a time.
TEST(ZeroGradients, OfABundleAreSummedTogether) {
  constexpr std::int64_t kElements = 3 * 1024;
  const PlainUnits units(std::vector<PlainUnits::Sizes>(8, {kElements}));
  StepShape shape = units.shape(3, true);
  shape.gathers = true;
  shape.bundles = {0, 1, 1, 3, 3, 5, 5, 7};
  const std::vector<Action> actions = serial_step(shape);
  for (const bool overlap : {false, true})
    each_rank(6, [&](Communicator& all) {
      Ledger ledger;
      const auto memory = make_memory(Device::cpu, ledger);
      CpuDevice cpu;
      ZeroGroups groups(all, {.dp = 6, .zero = 3, .shard = 3});
      ZeroGradients gradients(
          {.layouts = units.layouts(), .actions = actions, .shape = shape, .dtype = DType::f32, .overlap = overlap},
          groups, *memory, cpu.stream());
      EXPECT_EQ(ledger.peak(Tag::communication), 4 * kElements * 4);
      for (int step = 0; step < 2; ++step) {
        units.run(gradients, actions, all.rank());
        expect_plain_sums(gradients, units, groups, 3);
      }
    });
}

// What other ranks of a layer add is added before anything is summed over replicas.
TEST(ZeroGradients, AreCompletedBeforeTheyAreSummed) {
  const PlainUnits units({{300, 7}, {40}});
  const std::vector<Action> actions = serial_step(units.shape(1, true));
  each_rank(3, [&](Communicator& all) {
    CpuDevice cpu;
    ZeroGroups groups(all, {.dp = 3, .zero = 2});
    std::vector<int> completed;
    const auto complete = [&](int unit, const Tensor& flat) {
      completed.push_back(unit);
      flat.data<float>()[0] += 1000;
    };
    ZeroGradients gradients({.layouts = units.layouts(), .actions = actions, .dtype = DType::f32, .complete = complete},
                            groups, cpu.memory(), cpu.stream());
    units.run(gradients, actions, all.rank());
    EXPECT_EQ(completed, (std::vector<int>{1, 0}));
    if (all.rank() > 0) return;
    EXPECT_EQ(gradients.reduced(0).data<float>()[0], units.sum(0, 3, 1, 1024)[0] + 3000);
  });
}

}  // namespace
}  // namespace lockstep::tests
