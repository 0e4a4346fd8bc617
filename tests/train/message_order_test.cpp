// Each rank's whole order of messages, of phases too, is proven to fit all others' (docs/design.md, rule 5).
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "comm/meta/communicator.h"
#include "comm/threads/run_ranks.h"
#include "support/devices.h"
#include "support/host_run.h"
#include "support/learning_ranks.h"
#include "support/mesh_matrix.h"
#include "support/message_order.h"
#include "tensor/make_stream.h"

namespace lockstep::tests {
namespace {

std::vector<int> world_of(std::int64_t ranks) {
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Replica::Options mesh_options(const MeshCase& one) {
  Replica::Options options = learning_options(one.model.spec, one.layout, Precision::fp32);
  options.B = one.B;
  options.T = one.T;
  return options;
}

// Two steps: what one leaves under way the next waits for.
MessageOrder order_of(const Replica::Options& o, std::unique_ptr<Communicator> inner, Memory& memory, Stream& stream) {
  MessageOrder order;
  {
    OrderWriter ranks(std::move(inner), world_of(o.layout.ranks()), order);
    Replica replica(o, {ranks, ranks}, memory, stream);
    replica.init_weights();
    const TokenBatch batch = random_batch(o, 1);
    const auto given = [&, share = replica.given()](const std::vector<std::int32_t>& whole) {
      return std::span(whole).subspan(static_cast<std::size_t>(share.first * o.T),
                                      static_cast<std::size_t>(share.count * o.T));
    };
    for (int step = 0; step < 2; ++step) replica.step(given(batch.tokens), given(batch.targets));
    replica.settle();
  }
  return order;
}

std::vector<MessageOrder> orders_on_meta(const Replica::Options& o) {
  std::vector<MessageOrder> orders;
  for (int rank = 0; rank < static_cast<int>(o.layout.ranks()); ++rank) {
    Ledger ledger;
    const auto memory = make_memory(Device::meta, ledger);
    const auto stream = make_stream(*memory, 1, Device::cpu);
    orders.push_back(
        order_of(o, std::make_unique<meta::Communicator>(rank, static_cast<int>(o.layout.ranks())), *memory, *stream));
  }
  return orders;
}

std::vector<MessageOrder> orders_on_threads(const Replica::Options& o) {
  std::vector<MessageOrder> orders(static_cast<std::size_t>(o.layout.ranks()));
  run_ranks(static_cast<int>(o.layout.ranks()), [&](std::unique_ptr<Communicator> group) {
    const auto rank = static_cast<std::size_t>(group->rank());
    CpuDevice cpu;
    orders[rank] = order_of(o, std::move(group), cpu.memory(), cpu.stream());
  });
  return orders;
}

// Those along tp and cp, which phases send.
std::int64_t messages_inside(const MessageOrder& order) {
  return std::ranges::count_if(
      order, [](const MessageEvent& e) { return !e.waits && (e.group == "tp" || e.group.starts_with("cp")); });
}

TEST(MessageOrder, OfEveryRankFitsThoseOfAllOthers) {
  for (const MeshCase& one : mesh_sample(60, 11)) {
    const std::vector<MessageOrder> orders = orders_on_meta(mesh_options(one));
    ASSERT_EQ(fault_of(orders), "") << one.words();
    if (one.layout.tp > 1 || one.layout.cp > 1) {
      EXPECT_GT(messages_inside(orders[0]), 0) << one.words() << ": those inside phases are to be seen";
    }
  }
}

// A forward that runs twice sends twice; another stage, and every other block, may send once.
TEST(MessageOrder, FitsWhereForwardsRunTwice) {
  for (const MeshCase& one : mesh_sample(20, 14)) {
    Replica::Options options = mesh_options(one);
    const std::int64_t once = messages_inside(orders_on_meta(options)[0]);
    options.how.memory = {.recompute = Recompute::full, .recompute_every = 2, .recompute_stages = {}};
    options.how.memory.recompute_stages.counts.assign(static_cast<std::size_t>(one.layout.pp), 1);
    const std::vector<MessageOrder> orders = orders_on_meta(options);
    ASSERT_EQ(fault_of(orders), "") << one.words();
    if (one.layout.tp > 1 || one.layout.cp > 1) {
      EXPECT_GT(messages_inside(orders[0]), once) << one.words();
    }
  }
}

TEST(MessageOrder, OnMetaIsThatOfRealRanks) {
  for (const MeshCase& one : mesh_sample(8, 12)) {
    Replica::Options options = mesh_options(one);
    if (one.layout.zero % 2 == 0) options.how.memory.recompute = Recompute::full;
    const std::vector<MessageOrder> real = orders_on_threads(options), planned = orders_on_meta(options);
    for (std::size_t rank = 0; rank < real.size(); ++rank)
      EXPECT_TRUE(real[rank] == planned[rank]) << one.words() << ", rank " << rank;
  }
}

// One rank's two collectives in the other order, one message left out, one of another size: each is noticed.
TEST(MessageOrder, ThatDoesNotFitIsNoticed) {
  int tried = 0;
  for (const MeshCase& one : mesh_sample(12, 13)) {
    const std::vector<MessageOrder> orders = orders_on_meta(mesh_options(one));
    const std::size_t rank = orders.size() - 1;
    std::vector<std::size_t> starts;
    for (std::size_t i = 0; i < orders[rank].size(); ++i)
      if (!orders[rank][i].waits && orders[rank][i].members.size() > 1) starts.push_back(i);
    ASSERT_GT(starts.size(), 4U) << one.words();
    for (std::size_t turn = 1; turn < 5; ++turn) {
      const std::size_t i = starts[turn * starts.size() / 5];
      auto other = orders;
      other[rank][i].count += 1;
      EXPECT_NE(fault_of(other), "") << one.words() << ": another size";
      other = orders;
      const std::size_t number = other[rank][i].number;
      std::erase_if(other[rank], [&](const MessageEvent& e) { return e.number == number; });
      EXPECT_NE(fault_of(other), "") << one.words() << ": left out";
      ++tried;
    }
  }
  EXPECT_GE(tried, 40);
}

// Two ranks that receive before they send wait for each other; two that send first do not, if they wait afterwards.
TEST(MessageOrder, ThatNeverEndsIsNoticed) {
  const auto start = [](std::size_t number, CommOp op, int peer) {
    return MessageEvent{.number = number, .group = "g", .members = {0, 1}, .op = op, .count = 3, .peer = peer};
  };
  const auto wait = [](std::size_t number) { return MessageEvent{.waits = true, .number = number}; };
  const auto both = [&](bool receive_first, bool wait_at_once) {
    std::vector<MessageOrder> orders;
    for (const int peer : {1, 0}) {
      const CommOp a = receive_first ? CommOp::recv : CommOp::send, b = receive_first ? CommOp::send : CommOp::recv;
      if (wait_at_once)
        orders.push_back({start(0, a, peer), wait(0), start(2, b, peer), wait(2)});
      else
        orders.push_back({start(0, a, peer), start(1, b, peer), wait(0), wait(1)});
    }
    return fault_of(orders);
  };
  EXPECT_EQ(both(false, false), "");
  EXPECT_EQ(both(true, false), "");
  EXPECT_NE(both(true, true), "");
  EXPECT_NE(both(false, true), "") << "nothing is buffered";
}

}  // namespace
}  // namespace lockstep::tests
