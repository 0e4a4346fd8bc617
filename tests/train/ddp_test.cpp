// Data parallel: any number of ranks learn what one learns.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "comm/threads/run_ranks.h"
#include "support/host_run.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

constexpr int kSteps = 3;
constexpr std::int64_t kSamples = 24;  // of the global batch

struct Learned {
  std::vector<double> losses, norms;
  std::vector<std::vector<char>> weights;  // of each rank
  std::vector<double> first;               // rank 0's, as numbers
};

Replica::Options options(const ModelSpec& spec, const LayoutSpec& layout, Precision precision) {
  Replica::Options o{.spec = spec, .B = kSamples, .T = 9, .layout = layout, .precision = precision, .seed = 5};
  o.optimizer.clip = 0.1;  // active
  return o;
}

Learned learn(const ModelSpec& spec, const LayoutSpec& layout, Precision precision) {
  const int ranks = static_cast<int>(layout.dp);
  Learned learned;
  learned.weights.resize(ranks);
  run_ranks(ranks, [&](std::unique_ptr<Communicator> group) {
    const Replica::Options o = options(spec, layout, precision);
    Ledger ledger;
    const auto memory = make_memory(Device::cpu, ledger);
    cpu::Stream stream(*memory, 1);
    Replica replica(o, {*group, *group}, *memory, stream);
    replica.init_weights();
    for (unsigned step = 0; step < kSteps; ++step) {
      const TokenBatch all = random_batch(o, step);
      const auto part = [&, given = replica.given()](const std::vector<std::int32_t>& whole) {
        return std::span(whole).subspan(static_cast<std::size_t>(given.first * o.T),
                                        static_cast<std::size_t>(given.count * o.T));
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

void expect_close(const Learned& many, const Learned& one, double tolerance, const std::string& what) {
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(many.losses[step], one.losses[step], tolerance * one.losses[step]) << what;
    EXPECT_NEAR(many.norms[step], one.norms[step], 10 * tolerance * one.norms[step]) << what;
  }
  double error = 0, size = 0;
  for (std::size_t i = 0; i < one.first.size(); ++i) {
    error += (many.first[i] - one.first[i]) * (many.first[i] - one.first[i]);
    size += one.first[i] * one.first[i];
  }
  EXPECT_LE(std::sqrt(error), 10 * tolerance * std::sqrt(size)) << what;
  for (const auto& weights : many.weights) EXPECT_TRUE(weights == many.weights[0]) << what << ": ranks drifted apart";
}

class DataParallel : public ::testing::TestWithParam<NamedSpec> {};

TEST_P(DataParallel, LearnsWhatOneRankLearns) {
  const LayoutSpec layouts[] = {{.dp = 2, .micro = 3},
                                {.dp = 3, .micro = 2},
                                {.dp = 4, .micro = 3},
                                {.dp = 8, .micro = 1},
                                {.dp = 5, .micro = 1, .uneven = Switch::on},
                                {.dp = 3, .micro = 3, .uneven = Switch::on},
                                {.dp = 1, .micro = 1, .dp_kind = DpKind::central},
                                {.dp = 2, .micro = 3, .dp_kind = DpKind::central},
                                {.dp = 4, .micro = 1, .dp_kind = DpKind::central},
                                {.dp = 5, .micro = 2, .dp_kind = DpKind::central, .uneven = Switch::on}};
  for (const auto& [precision, tolerance] : {std::pair{Precision::fp64, 1e-11}, std::pair{Precision::fp32, 1e-5}}) {
    const Learned one = learn(GetParam().spec, {}, precision);
    for (const LayoutSpec& layout : layouts)
      expect_close(learn(GetParam().spec, layout, precision), one, tolerance,
                   fmt::format("{} of {} ranks, micro {}", name_of(layout.dp_kind), layout.dp, layout.micro));
  }
}

INSTANTIATE_TEST_SUITE_P(All, DataParallel, ::testing::ValuesIn(tiny_specs()),
                         [](const auto& info) { return info.param.name; });

// What keeps the order of sums keeps every bit: how gradients are cut into buckets, whether they are summed while
// backward goes on, and who updates.
TEST(DataParallelBits, DoNotDependOnBucketsOverlapOrWhoUpdates) {
  for (const NamedSpec& model : {tiny_specs()[0], tiny_specs().back()}) {
    for (const int ranks : {3, 5, 7}) {
      LayoutSpec layout{.dp = ranks, .micro = 3, .bucket = 0, .uneven = Switch::on};
      const Learned each_parameter = learn(model.spec, layout, Precision::fp32);
      EXPECT_GT(each_parameter.norms[0], 0.1) << "clipping is to be active";
      const auto same = [&](const LayoutSpec& other, const char* what) {
        const Learned learned = learn(model.spec, other, Precision::fp32);
        EXPECT_TRUE(learned.weights[0] == each_parameter.weights[0]) << what << ", " << ranks << " ranks";
        EXPECT_EQ(learned.losses, each_parameter.losses) << what;
        EXPECT_EQ(learned.norms, each_parameter.norms) << what;
      };
      layout.overlap = Switch::off;
      same(layout, "without overlap");
      layout.bucket = 25;
      same(layout, "one bucket, without overlap");
      layout.overlap = Switch::on;
      same(layout, "one bucket");
      layout.dp_kind = DpKind::central;
      same(layout, "central");
    }
  }
}

}  // namespace
}  // namespace lockstep::tests
