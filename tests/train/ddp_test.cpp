// Data parallel: any number of ranks learn what one learns, and send what the theory says.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "comm/recorder.h"
#include "comm/threads/run_ranks.h"
#include "support/host_run.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

constexpr int kSteps = 3;

struct Learned {
  std::vector<double> losses, norms;
  std::vector<std::vector<char>> weights;  // of each rank
  std::vector<double> first;               // rank 0's, as numbers
};

Replica::Options options(const ModelSpec& spec, int ranks, int micro, Precision precision) {
  Replica::Options o{.spec = spec, .B = 12 / ranks, .T = 9, .micro = micro, .precision = precision, .seed = 5};
  o.optimizer.clip = 0.1;  // active
  return o;
}

Learned learn(const ModelSpec& spec, int ranks, int micro, Precision precision) {
  Learned learned;
  learned.weights.resize(ranks);
  run_ranks(ranks, [&](std::unique_ptr<Communicator> group) {
    const Replica::Options o = options(spec, ranks, micro, precision);
    Ledger ledger;
    const auto memory = make_memory(Device::cpu, ledger);
    cpu::Stream stream(*memory, 1);
    Replica replica(o, {*group, *group}, *memory, stream);
    replica.init_weights();
    for (unsigned step = 0; step < kSteps; ++step) {
      const TokenBatch all = random_batch(options(spec, 1, 1, precision), step);
      const auto part = [&](const std::vector<std::int32_t>& whole) {
        const std::size_t each = whole.size() / static_cast<std::size_t>(ranks);
        return std::span(whole).subspan(each * static_cast<std::size_t>(group->rank()), each);
      };
      const Replica::Result result = replica.step(part(all.tokens), part(all.targets));
      if (group->rank() == 0) {
        learned.losses.push_back(result.loss);
        learned.norms.push_back(result.norm);
      }
    }
    for (const auto& t : replica.tensors()) {
      const char* p = static_cast<const char*>(t.master.raw());
      auto& mine = learned.weights[static_cast<std::size_t>(group->rank())];
      mine.insert(mine.end(), p, p + t.master.bytes());
      if (group->rank() != 0) continue;
      for (std::int64_t i = 0; i < t.master.elements(); ++i)
        learned.first.push_back(precision == Precision::fp64 ? t.master.data<double>()[i]
                                                             : static_cast<double>(t.master.data<float>()[i]));
    }
  });
  return learned;
}

class DataParallel : public ::testing::TestWithParam<NamedSpec> {};

TEST_P(DataParallel, LearnsWhatOneRankLearns) {
  for (const auto& [precision, tolerance] : {std::pair{Precision::fp64, 1e-11}, std::pair{Precision::fp32, 1e-5}}) {
    const Learned one = learn(GetParam().spec, 1, 1, precision);
    double size = 0;
    for (const double w : one.first) size += w * w;
    for (const auto& [ranks, micro] : {std::pair{2, 3}, std::pair{3, 2}, std::pair{4, 3}, std::pair{6, 1}}) {
      const Learned many = learn(GetParam().spec, ranks, micro, precision);
      for (int step = 0; step < kSteps; ++step) {
        EXPECT_NEAR(many.losses[step], one.losses[step], tolerance * one.losses[step]) << ranks;
        EXPECT_NEAR(many.norms[step], one.norms[step], 10 * tolerance * one.norms[step]) << ranks;
      }
      double error = 0;
      for (std::size_t i = 0; i < one.first.size(); ++i)
        error += (many.first[i] - one.first[i]) * (many.first[i] - one.first[i]);
      EXPECT_LE(std::sqrt(error), 10 * tolerance * std::sqrt(size)) << ranks << " ranks";
      for (const auto& weights : many.weights) EXPECT_TRUE(weights == many.weights[0]) << "ranks have drifted apart";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DataParallel, ::testing::ValuesIn(tiny_specs()),
                         [](const auto& info) { return info.param.name; });

// A step sends each rank's gradient once: 2Ψ(N-1)/N elements, and the two numbers of the host.
TEST(DataParallelMessages, AreWhatTheTheorySays) {
  const ModelSpec spec = tiny_specs()[0].spec;
  for (const int ranks : {2, 4}) {
    run_ranks(ranks, [&](std::unique_ptr<Communicator> group) {
      CommLog log;
      Recorder recorded(std::move(group), log);
      const Replica::Options o = options(spec, ranks, 1, Precision::fp32);
      Ledger ledger;
      const auto memory = make_memory(Device::cpu, ledger);
      cpu::Stream stream(*memory, 1);
      Replica replica(o, {recorded, recorded}, *memory, stream);
      replica.init_weights();
      const TokenBatch batch = random_batch(o, 1);
      replica.step(batch.tokens, batch.targets);
      std::int64_t stored = 0;
      for (int u = 0; u < replica.model().units(); ++u) stored += replica.model().unit(u).layout().owned();
      std::int64_t gradients = 0, others = 0;
      for (const auto& [key, total] : log.totals())
        (std::get<DType>(key) == DType::f32 ? gradients : others) += total.sent;
      EXPECT_EQ(gradients, 2 * stored * (ranks - 1) / ranks);
      EXPECT_LE(others, 8);
    });
  }
}

}  // namespace
}  // namespace lockstep::tests
