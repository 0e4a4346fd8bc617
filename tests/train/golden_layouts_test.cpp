// The golden runs under every data-parallel layout: what one rank learns from them, every number of ranks learns, and
// whoever holds what.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "checkpoint/hf_tensors.h"
#include "comm/threads/run_ranks.h"
#include "spec/layout/updates.h"
#include "support/host_run.h"
#include "tensor/transfer.h"
#include "train/key_bias.h"
#include "train/reference_data.h"

namespace lockstep::tests {
namespace {

constexpr std::int64_t kGoldenSteps = 6;

struct LearnedWeights {
  std::vector<double> losses;
  std::vector<std::vector<double>> weights;
};

LearnedWeights learn_reference(const ReferenceData& data, const LayoutSpec& layout, Precision precision) {
  LearnedWeights learned;
  std::vector<LogicalTensor> names;
  run_ranks(static_cast<int>(layout.ranks()), [&](std::unique_ptr<Communicator> ranks) {
    Ledger ledger;
    const auto memory = make_memory(Device::cpu, ledger);
    cpu::Stream stream(*memory, 1);
    Replica replica({.spec = data.spec(),
                     .B = data.B(),
                     .T = data.T(),
                     .layout = layout,
                     .precision = precision,
                     .optimizer = data.optimizer()},
                    {*ranks, *ranks}, *memory, stream);
    const std::vector<LogicalTensor> all = logical_tensors(replica.model());
    replica.load(find_hf_tensors(data.weights(), all));
    if (ranks->rank() == 0) names = all;
    for (std::int64_t step = 0; step < kGoldenSteps; ++step) {
      const ReferenceData::StepTokens batch = data.tokens(step);
      const auto given = [&, share = replica.given()](const std::vector<std::int32_t>& whole) {
        return std::span(whole).subspan(share.first * data.T(), share.count * data.T());
      };
      const double loss = replica.step(given(batch.tokens), given(batch.targets)).loss;
      if (ranks->rank() == 0) learned.losses.push_back(loss);
    }
    const std::vector<Replica::Named> tensors = replica.tensors();
    if (ranks->rank() == 0)
      for (const LogicalTensor& tensor : all) learned.weights.emplace_back(tensor.elements());
    ranks->barrier()->wait();
    // The first copy is looked at.
    if (!rank_updates(layout, ranks->rank()) || state_copy(layout, ranks->rank()) > 0) return;
    for (const Replica::Named& named : tensors) {
      const auto at = std::ranges::find(all, named.tensor.name, &LogicalTensor::name) - all.begin();
      if (named.counted && !named.runs.empty()) named.put(to_doubles(named.master, stream), learned.weights[at]);
    }
  });
  for (std::size_t t = 0; t < names.size(); ++t)
    if (const auto noise = key_bias_of(data.spec(), names[t].name))
      std::fill(learned.weights[t].begin() + noise->first, learned.weights[t].begin() + noise->second, 0.0);
  return learned;
}

class GoldenLayouts : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenLayouts, LearnWhatOneRankLearns) {
  const ReferenceData data(std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests" / "golden" / GetParam());
  std::vector<LayoutSpec> layouts;
  for (const DpKind kind : {DpKind::ddp, DpKind::central}) {
    for (const int dp : {1, 2, 4, 8}) layouts.push_back({.dp = dp, .dp_kind = kind});
    for (const int dp : {3, 5}) layouts.push_back({.dp = dp, .dp_kind = kind, .uneven = Switch::on});
  }
  layouts.push_back({.dp = 2, .micro = 2, .dp_kind = DpKind::server, .servers = 1});
  layouts.push_back({.dp = 3, .dp_kind = DpKind::server, .servers = 2, .uneven = Switch::on});
  layouts.push_back({.dp = 2, .pp = 2, .micro = 2, .dp_kind = DpKind::server, .servers = 4});
  for (const int zero : {1, 2, 3}) {
    layouts.push_back({.dp = 2, .micro = 2, .zero = zero});
    layouts.push_back({.dp = 8, .zero = zero, .shard = 2});
    layouts.push_back({.dp = 5, .zero = zero, .overlap = Switch::off, .uneven = Switch::on});
  }
  for (const ScheduleKind kind : kScheduleKinds)
    layouts.push_back({.pp = 2, .schedule = kind, .chunks = usual_chunks(kind), .micro = 2});
  layouts.push_back({.pp = 4, .micro = 4});
  layouts.push_back({.dp = 2, .pp = 3, .schedule = ScheduleKind::zb_h1, .micro = 2, .zero = 3});
  for (const std::int64_t tp : {2, 4, 8}) {
    if (!heads_divide(data.spec().heads, data.spec().kv_heads, tp)) continue;
    for (const Switch sp : {Switch::off, Switch::on}) {
      layouts.push_back({.tp = tp, .sp = sp});
      for (const std::int64_t zero : {0, 1, 2, 3})
        if (tp == 2) layouts.push_back({.dp = zero < 2 ? 2 : 4, .tp = tp, .sp = sp, .micro = 2, .zero = zero});
    }
  }
  for (const auto& [precision, tolerance] : {std::pair{Precision::fp64, 1e-11}, std::pair{Precision::fp32, 1e-5}}) {
    const LearnedWeights one = learn_reference(data, {}, precision);
    for (const LayoutSpec& layout : layouts) {
      const LearnedWeights many = learn_reference(data, layout, precision);
      for (std::int64_t i = 0; i < kGoldenSteps; ++i)
        EXPECT_NEAR(many.losses[i], one.losses[i], tolerance * one.losses[i]) << to_text(layout);
      double error = 0, size = 0;
      for (std::size_t t = 0; t < one.weights.size(); ++t)
        for (std::size_t e = 0; e < one.weights[t].size(); ++e) {
          error += std::pow(many.weights[t][e] - one.weights[t][e], 2);
          size += std::pow(one.weights[t][e], 2);
        }
      EXPECT_LE(std::sqrt(error), tolerance * std::sqrt(size)) << to_text(layout) << " in " << name_of(precision);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, GoldenLayouts,
                         ::testing::Values("llama-tiny", "llama-tied-scaled", "llama-mha-8l", "gpt2-tiny",
                                           "qwen2-tiny"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace lockstep::tests
