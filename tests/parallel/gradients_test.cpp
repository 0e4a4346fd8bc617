// Which way of holding gradients a layout asks for, and where a unit's parameters are in its flat buffers.
#include "parallel/gradients.h"

#include <gtest/gtest.h>

#include "parallel/ddp_buckets.h"
#include "parallel/reduce_kind.h"
#include "parallel/zero_gradients.h"
#include "support/devices.h"
#include "support/plain_units.h"

namespace lockstep::tests {
namespace {

TEST(Gradients, ArePassedOnAfterEachMicroBatchWhereTheLayoutSaysSo) {
  const PlainUnits units({{300, 7}, {40}});
  const auto passes_on = [&](Communicator& all, const LayoutSpec& layout) {
    CpuDevice cpu;
    ZeroGroups groups(all, layout);
    const std::vector<Action> actions = serial_step(units.shape(1, layout.passes_on()));
    const auto made = make_gradients({.layouts = units.layouts(), .actions = actions, .dtype = DType::f32}, layout,
                                     groups, cpu.memory(), cpu.stream());
    const bool zero = dynamic_cast<const ZeroGradients*>(made.get()) != nullptr;
    EXPECT_NE(zero, dynamic_cast<const DdpBuckets*>(made.get()) != nullptr);
    return zero;
  };
  each_rank(3, [&](Communicator& all) {
    EXPECT_FALSE(passes_on(all, {.dp = 3}));
    EXPECT_FALSE(passes_on(all, {.dp = 3, .zero = 1}));
    EXPECT_TRUE(passes_on(all, {.dp = 3, .zero = 2}));
    EXPECT_TRUE(passes_on(all, {.dp = 3, .zero = 3}));
    EXPECT_FALSE(passes_on(all, {.dp = 3, .zero = 2, .grad_sync = GradSync::step}));
    EXPECT_TRUE(passes_on(all, {.dp = 3, .grad_sync = GradSync::micro}));
  });
}

TEST(Gradients, OfTiedParametersAreInABufferOfTheirOwn) {
  UnitLayout layout("unit");
  layout.add({.shape = {300}, .pieces = {{{"a", {300}}}}});
  layout.add({.shape = {2, 20}, .tied = true});
  layout.add({.shape = {4, 10}, .pieces = {{{"b", {4, 10}}}}});
  Row flat(DType::f32, layout.owned()), tied(DType::f32, layout.elements() - layout.owned());
  const std::vector<Tensor> all = parameters_in(layout, flat, tied);
  ASSERT_EQ(all.size(), 3u);
  const auto* begin = static_cast<Tensor>(flat).data<float>();
  EXPECT_EQ(all[0].data<float>() - begin, layout.offset(0));
  EXPECT_EQ(all[1].data<float>(), static_cast<Tensor>(tied).data<float>());
  EXPECT_EQ(all[2].data<float>() - begin, layout.offset(2));
  EXPECT_EQ(all[1].shape(), (Shape{2, 20}));
  EXPECT_EQ(all[2].shape(), (Shape{4, 10}));
}

TEST(ReduceKind, NamesTheAlgorithmOfTheSameName) {
  EXPECT_EQ(algorithm_of(ReduceKind::canonical), Algorithm::canonical);
  EXPECT_EQ(algorithm_of(ReduceKind::ring), Algorithm::ring);
  EXPECT_EQ(algorithm_of(ReduceKind::tree), Algorithm::tree);
  EXPECT_EQ(algorithm_of(ReduceKind::native), Algorithm::native);
}

}  // namespace
}  // namespace lockstep::tests
