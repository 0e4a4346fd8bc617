// What a kernel and a message cost follows their shape and place as the machine file says.
#include <gtest/gtest.h>

#include "plan/kernel_prices.h"
#include "plan/message_prices.h"

namespace lockstep::tests {
namespace {

MachineSpec priced_machine() {
  MachineSpec machine = find_machine("h100-sxm");
  machine.launch = 0;
  machine.attention = {.forward = 0.5, .backward = 0.5};
  return machine;
}

meta::Kernel long_attention(std::int32_t width) {
  const std::int64_t tokens = 8192;
  return {.kind = meta::KernelKind::attention_forward,
          .dtype = DType::bf16,
          .head_width = width,
          .m = tokens,
          .n = 16,
          .k = tokens,
          .flops = 2 * width * tokens * tokens * 16};
}

TEST(KernelPrices, NarrowHeadsReachLessOfThePeak) {
  MachineSpec machine = priced_machine();
  const double without = KernelPrices(machine).seconds(long_attention(64));
  machine.attention.half_width = 64;
  EXPECT_DOUBLE_EQ(KernelPrices(machine).seconds(long_attention(64)), 2 * without);
}

TEST(KernelPrices, ScoresThatPassThroughMemoryTakeTheirBytes) {
  MachineSpec machine = priced_machine();
  const double without = KernelPrices(machine).seconds(long_attention(128));
  machine.attention.forward_scores = 13;
  const double bytes = 13.0 * 8192 * 8192 * 16;
  EXPECT_DOUBLE_EQ(KernelPrices(machine).seconds(long_attention(128)), without + bytes / machine.rate_of_copy(bytes));
}

StageMessage over_nodes(CommOp op, Algorithm algorithm) {
  return {.op = op,
          .algorithm = algorithm,
          .group = {.ranks = 64, .nodes = 64, .on_node = 1, .over_spine = true, .on_spine = 16},
          .sent = 1 << 30};
}

TEST(MessagePrices, GathersCostTheSameWhateverTheAlgorithmOfSums) {
  const MachineSpec machine = priced_machine();
  for (const Algorithm algorithm : {Algorithm::canonical, Algorithm::ring, Algorithm::tree})
    EXPECT_EQ(price_of(over_nodes(CommOp::all_gather, algorithm), machine).seconds(),
              price_of(over_nodes(CommOp::all_gather, Algorithm::native), machine).seconds());
}

// Of 64 ranks in groups of 16 a ring leaves each group once, everybody's exchange nearly always.
TEST(MessagePrices, OversubscribedLinksSlowWhatLeavesTheirNodes) {
  MachineSpec machine = priced_machine();
  machine.spine_nodes = 16;
  const auto slowed = [&](Algorithm algorithm, double by) {
    StageMessage message = over_nodes(CommOp::reduce_scatter, algorithm);
    machine.oversubscription = by;
    const double all = price_of(message, machine).transfer;
    message.group.over_spine = false;
    return all / price_of(message, machine).transfer;
  };
  EXPECT_DOUBLE_EQ(slowed(Algorithm::native, 7), 1);
  EXPECT_DOUBLE_EQ(slowed(Algorithm::native, 32), 2);
  EXPECT_DOUBLE_EQ(slowed(Algorithm::canonical, 7), 7 * 48.0 / 63);
}

}  // namespace
}  // namespace lockstep::tests
