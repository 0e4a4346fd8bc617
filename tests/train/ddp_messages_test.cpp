// What data parallel sends: the recorder of real ranks, the recorder on meta, and the theory are one.
#include <gtest/gtest.h>

#include "support/recorded_step.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

Replica::Options data_parallel_options(const LayoutSpec& layout, std::int64_t samples) {
  return {.spec = tiny_specs()[0].spec, .B = samples, .T = 9, .layout = layout, .seed = 5};
}

TEST(DataParallelMessages, MetaCountsWhatRanksSend) {
  for (const DpKind kind : {DpKind::ddp, DpKind::central})
    for (const ReduceKind reduce : {ReduceKind::canonical, ReduceKind::ring, ReduceKind::tree})
      for (const int ranks : {2, 3, 5, 8}) {
        const Replica::Options o = data_parallel_options(
            {.dp = ranks, .micro = 2, .dp_kind = kind, .bucket = 0, .uneven = Switch::on, .reduce = reduce}, 22);
        const std::vector<Recorded> real = on_threads(o);
        for (int r = 0; r < ranks; ++r)
          EXPECT_EQ(on_meta(o, r).sent, real[static_cast<std::size_t>(r)].sent) << to_text(o.layout) << ", rank " << r;
      }
}

// An all-reduce of the gradient is 2Ψ(N-1)/N elements a rank; where N does not divide Ψ, the ranks differ by the size
// of one element's piece and 2Ψ(N-1) is what all of them send.
TEST(DataParallelMessages, OfDdpAreWhatTheTheorySays) {
  for (const ReduceKind reduce : {ReduceKind::canonical, ReduceKind::ring})
    for (const int ranks : {2, 4, 8, 3, 5, 7}) {
      const Replica::Options o =
          data_parallel_options({.dp = ranks, .micro = 1, .uneven = Switch::on, .reduce = reduce}, 16);
      std::int64_t all = 0;
      for (int r = 0; r < ranks; ++r) {
        const Recorded one = on_meta(o, r);
        const std::int64_t sent = one.sent.at({CommOp::all_reduce, DType::f32})[1];
        if (one.stored % ranks == 0) {
          EXPECT_EQ(sent, 2 * one.stored * (ranks - 1) / ranks) << to_text(o.layout);
        }
        all += sent;
        EXPECT_EQ(one.sent.size(), 3u) << "the gradient, and two numbers of the host: targets and loss";
        if (r == ranks - 1) {
          EXPECT_EQ(all, 2 * one.stored * (ranks - 1)) << to_text(o.layout);
        }
      }
    }
}

TEST(DataParallelMessages, OfWorldsThatNoMachineHoldsAreCounted) {
  for (const int ranks : {16, 256, 1000, 4096, 100000}) {
    const Replica::Options o = data_parallel_options({.dp = ranks}, ranks);
    const Recorded first = on_meta(o, 0), last = on_meta(o, ranks - 1);
    const auto sent = [&](const Recorded& one) { return one.sent.at({CommOp::all_reduce, DType::f32})[1]; };
    // Rank 0's piece is one of the largest, the last rank's one of the smallest.
    const std::int64_t n = first.stored, large = (n + ranks - 1) / ranks, small = n / ranks;
    EXPECT_EQ(sent(first), n - large + (ranks - 1) * large) << ranks;
    EXPECT_EQ(sent(last), n - small + (ranks - 1) * small) << ranks;
    if (n % ranks == 0) {
      EXPECT_EQ(sent(first), 2 * n * (ranks - 1) / ranks);
    }
  }
}

// docs/data-parallel.md derives it: rank 0 deals out tokens, the gradient of the logits, and the weights, and gets
// everybody's logits and gradients.
TEST(DataParallelMessages, OfCentralFallOnRankZero) {
  for (const int ranks : {2, 3, 5}) {
    const Replica::Options o =
        data_parallel_options({.dp = ranks, .micro = 2, .dp_kind = DpKind::central, .uneven = Switch::on}, 22);
    const Recorded master = on_meta(o, 0), other = on_meta(o, ranks - 1);
    const std::int64_t psi = master.stored, V = o.spec.vocabulary;
    const std::int64_t tokens = share_of(o.B, o.layout, ranks - 1).count * o.T;   // of the last rank
    const std::int64_t foreign = (o.B - share_of(o.B, o.layout, 0).count) * o.T;  // of all but rank 0
    const auto of = [](const Recorded& one, CommOp op, DType type, int which) {
      return one.sent.at({op, type})[static_cast<std::size_t>(which)];
    };
    constexpr int kSent = 1, kReceived = 2;
    EXPECT_EQ(of(master, CommOp::scatter, DType::i32, kSent), foreign);
    EXPECT_EQ(of(master, CommOp::gather, DType::f32, kReceived), foreign * V);
    EXPECT_EQ(of(master, CommOp::scatter, DType::f32, kSent), foreign * V);
    EXPECT_EQ(of(master, CommOp::reduce, DType::f32, kReceived), (ranks - 1) * psi);
    EXPECT_EQ(of(master, CommOp::broadcast, DType::f32, kSent), (ranks - 1) * psi);
    EXPECT_EQ(of(other, CommOp::gather, DType::f32, kSent), tokens * V);
    EXPECT_EQ(of(other, CommOp::reduce, DType::f32, kSent), psi);
    EXPECT_EQ(of(other, CommOp::broadcast, DType::f32, kReceived), psi);
  }
}

}  // namespace
}  // namespace lockstep::tests
