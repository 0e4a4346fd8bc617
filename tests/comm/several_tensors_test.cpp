// Several tensors in one call: the bits of calls of their own, and the ranks meet once.
#include "support/several_tensors.h"

#include "comm/traffic.h"

namespace lockstep::tests {
namespace {

class SeveralTensors : public ::testing::TestWithParam<int> {};

TEST_P(SeveralTensors, AreEachWhatACallOfItsOwnMakes) {
  each_rank(GetParam(), [](Communicator& comm) { expect_several_as_apart(comm, kAlgorithms); });
}

INSTANTIATE_TEST_SUITE_P(Ranks, SeveralTensors, ::testing::Values(1, 2, 3, 5, 7, 8));

// As ZeRO sums: into this rank's part of what it gives.
TEST(SeveralTensorsInPlace, AreSummedWhereTheyLie) {
  each_rank(3, [](Communicator& comm) {
    Row a = row_of(DType::f32, 3 * 100, comm.rank()), b = row_of(DType::f32, 3 * 7, comm.rank());
    comm.reduce_scatter({{a.part(comm.rank() * 100, 100), a}, {b.part(comm.rank() * 7, 7), b}})->wait();
    for (int i = 0; i < 7; ++i) {
      const std::int64_t at = comm.rank() * 7 + i;
      EXPECT_EQ(b[at], whole(0, at) + whole(1, at) + whole(2, at));
    }
  });
}

TEST(SeveralTensorsCount, AsOneCallOfAllTheirElements) {
  const Message one{.op = CommOp::all_gather,
                    .out = Tensor(nullptr, DType::f32, Device::meta, {400}),
                    .in = Tensor(nullptr, DType::f32, Device::meta, {100})};
  Message two = one;
  two.also.push_back(
      {Tensor(nullptr, DType::f32, Device::meta, {4000}), Tensor(nullptr, DType::f32, Device::meta, {1000})});
  EXPECT_EQ(count_of(two, 4), 4400);
  EXPECT_EQ(describe(two, 4), "all_gather of 4400 fp32 in 2 tensors (canonical)");
  const Traffic single = traffic_of(one, 1, 4), both = traffic_of(two, 1, 4);
  EXPECT_EQ(both, (Traffic{11 * single.sent, 11 * single.received, single.messages, single.steps}));
  EXPECT_FALSE(agree(one, two, 4));
  Message other = two;
  other.also[0].out = other.also[0].out.slice(0, 0, 3996);
  other.also[0].in = other.also[0].in.slice(0, 0, 999);
  EXPECT_FALSE(agree(two, other, 4));
  EXPECT_TRUE(agree(two, two, 4));
}

TEST(SeveralTensorsCount, ThatTheRanksDoNotAgreeOnIsAFailureOfAll) {
  const auto errors = errors_of(2, [](Communicator& comm) {
    Row a(DType::f32, 20), b(DType::f32, 6), mine(DType::f32, 10), own(DType::f32, 3);
    std::vector<Operands> all{{a, mine}};
    if (comm.rank() == 1) all.push_back({b, own});
    comm.all_gather(all)->wait();
  });
  for (const std::string& error : errors) EXPECT_NE(error.find("in 2 tensors"), std::string::npos) << error;
}

TEST(SeveralTensorsCount, AreRefusedByOperationsThatTakeOne) {
  Row a(DType::f32, 4), b(DType::f32, 4);
  Message message{.op = CommOp::broadcast, .out = a, .in = a};
  message.also.push_back({b, b});
  EXPECT_THROW(check_message(message, 0, 2, Device::cpu), ProgramError);
  message.op = CommOp::all_reduce;
  EXPECT_NO_THROW(check_message(message, 0, 2, Device::cpu));
  Row other(DType::bf16, 4);
  message.also[0] = {other, other};
  EXPECT_THROW(check_message(message, 0, 2, Device::cpu), ProgramError);
}

}  // namespace
}  // namespace lockstep::tests
