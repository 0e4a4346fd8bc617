// What a kernel and a message cost follows their shape and place as the machine file says.
#include <gtest/gtest.h>

#include "plan/device_clock.h"
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

// Two hosts of one device each, as `lockstep bench machine` measures them.
MachineSpec two_hosts_machine() {
  MachineSpec machine = priced_machine();
  machine.sum_rate = 1e12;
  machine.inter_node = {.bandwidth = 1e8,
                        .latency = 1e-4,
                        .collective_latency = 3e-4,
                        .efficiency = 0.5,
                        .pair_efficiency = 0.8,
                        .both_ways = 0.25};
  return machine;
}
constexpr GroupSpan kTwoHosts{.ranks = 2, .nodes = 2};

TEST(MessagePrices, ACollectiveHasALatencyOfItsOwnAndASendThatOfThePair) {
  MachineSpec machine = two_hosts_machine();
  const StageMessage sum{.op = CommOp::all_reduce, .group = kTwoHosts, .sent = 1'000'000, .steps = 2};
  const StageMessage send{.op = CommOp::send, .group = kTwoHosts, .sent = 1'000'000};
  EXPECT_NEAR(price_of(sum, machine).seconds(), 2 * 3e-4 + 1e6 / 0.5e8, 1e-12);
  EXPECT_NEAR(price_of(send, machine).seconds(), 1e-4 + 1e6 / 0.8e8, 1e-12);
  machine.inter_node.collective_latency = 0;
  EXPECT_NEAR(price_of(sum, machine).seconds(), 2 * 1e-4 + 1e6 / 0.5e8, 1e-12);
}

// Ring attention sends and receives at the same time: in a phase both have the share of the rate that is kept then.
TEST(MessagePrices, ARingOfTwoHostsSendsBothWaysAtOnce) {
  const MachineSpec machine = two_hosts_machine();
  const std::vector<StageMessage> messages = {
      {.op = CommOp::send, .group = {.axis = MeshAxis::cp, .ranks = 2, .nodes = 2}, .sent = 1'000'000},
      {.op = CommOp::recv, .group = {.axis = MeshAxis::cp, .ranks = 2, .nodes = 2}, .sent = 1'000'000}};
  using Kind = StagePiece::Kind;
  const PhaseScript phase{.pieces = {{.kind = Kind::start, .index = 0, .number = 0},
                                     {.kind = Kind::start, .index = 1, .number = 1},
                                     {.kind = Kind::wait, .number = 0},
                                     {.kind = Kind::wait, .number = 1}},
                          .work = {}};
  std::vector<MessagePrice> prices;
  for (const StageMessage& m : messages) prices.push_back(price_of(m, machine));
  EXPECT_NEAR(time_of(phase, prices, messages, 0).seconds(), 1e-4 + 1e6 / (0.8e8 * 0.25), 1e-12);
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
