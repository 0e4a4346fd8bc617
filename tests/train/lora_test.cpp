// LoRA trains adapters and nothing else, and learns what a plain program learns, in any layout.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/host_run.h"
#include "support/naive_model.h"
#include "support/serial_lora.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

constexpr int kLoraSteps = 3;

Replica::Options learning_adapters(const ModelSpec& spec, const LayoutSpec& layout = {},
                                   Precision precision = Precision::fp64, std::vector<std::string> targets = {"all"}) {
  Replica::Options o = learning_options(spec, layout, precision);
  o.T = 12;
  o.optimizer.learning_rate = 0.02;  // B begins at zero, and is to matter soon
  o.how.lora = {.rank = 3, .alpha = 4, .targets = std::move(targets)};
  return o;
}

std::vector<std::vector<std::string>> lora_targets(const ModelSpec& spec) {
  if (spec.family == Family::gpt2) return {{"all"}, {"c_attn"}, {"attn.c_proj"}, {"c_fc"}, {"mlp.c_proj"}, {"c_proj"}};
  return {{"all"},       {"q_proj", "v_proj"}, {"k_proj"},    {"o_proj"},
          {"gate_proj"}, {"up_proj"},          {"down_proj"}, {"o_proj", "up_proj"}};
}

class LoraOf : public ::testing::TestWithParam<NamedSpec> {};

TEST_P(LoraOf, LearnsWhatThePlainProgramLearns) {
  for (const auto& targets : lora_targets(GetParam().spec)) {
    const Replica::Options o = learning_adapters(GetParam().spec, {}, Precision::fp64, targets);
    expect_close(learn(o, kLoraSteps), learn_with_adapters(o, kLoraSteps).learned, 1e-11,
                 fmt::format("{}", targets.front()));
  }
}

// The loss after some steps is that of the published model, in plain loops, with W + (alpha / rank) · B · A.
TEST_P(LoraOf, HasTheLossOfThePlainModelWithMergedWeights) {
  if (GetParam().spec.dropout > 0) return;
  const Replica::Options o = learning_adapters(GetParam().spec);
  const PlainTensors merged = learn_with_adapters(o, kLoraSteps).merged;
  const TokenBatch batch = random_batch(o, kLoraSteps);
  double sum = 0;
  std::int64_t targets = 0;
  for (std::int64_t b = 0; b < o.B; ++b) {
    const auto begin = b * o.T;
    const std::vector<int> tokens(batch.tokens.begin() + begin, batch.tokens.begin() + begin + o.T),
        wanted(batch.targets.begin() + begin, batch.targets.begin() + begin + o.T);
    const Values logits = naive_logits(
        o.spec, [&](const std::string& name) -> const Values& { return merged.at(name); }, tokens);
    for (const double loss : naive_losses(logits, wanted)) sum += loss;
    targets += std::ranges::count_if(wanted, [](int target) { return target >= 0; });
  }
  const double loss = sum / static_cast<double>(targets);
  EXPECT_NEAR(learn(o, kLoraSteps + 1).losses.back(), loss, 1e-11 * loss);
}

TEST_P(LoraOf, LearnsTheSameWhateverIsComputedAgain) {
  for (const auto& targets : lora_targets(GetParam().spec)) {
    Replica::Options o = learning_adapters(GetParam().spec, {.micro = 2}, Precision::fp32, targets);
    const Learned kept = learn(o, kLoraSteps);
    for (const Recompute recompute : {Recompute::elementwise, Recompute::projections, Recompute::full}) {
      o.how.memory.recompute = recompute;
      expect_equal(learn(o, kLoraSteps), kept, fmt::format("{}, {}", targets.front(), name_of(recompute)));
    }
    o.how.memory.recompute = Recompute::none;
    o.how.memory.offload_activations = Offload::host;
    expect_equal(learn(o, kLoraSteps), kept, fmt::format("{}, activations offloaded", targets.front()));
  }
}

std::vector<LayoutSpec> lora_layouts() {
  std::vector<LayoutSpec> all;
  for (const int dp : {2, 3, 5}) all.push_back({.dp = dp});
  for (const int zero : {1, 2, 3})
    for (const int dp : {2, 3}) all.push_back({.dp = dp, .micro = 2, .zero = zero});
  all.push_back({.dp = 4, .zero = 3, .shard = 2});
  all.push_back({.dp = 2, .zero = 3, .wrap = *WrapRule::parse("halves")});
  for (const Switch sp : {Switch::off, Switch::on}) {
    all.push_back({.tp = 2, .sp = sp});
    all.push_back({.tp = 3, .sp = sp, .micro = 2});
    all.push_back({.tp = 4, .sp = sp});  // of 8 heads, which share 2 key/value heads
    for (const int tp : {2, 3}) all.push_back({.dp = 2, .tp = tp, .sp = sp, .micro = 2, .zero = 3});
  }
  for (const ScheduleKind schedule : {ScheduleKind::afab, ScheduleKind::one_f_one_b, ScheduleKind::zb_h1})
    all.push_back({.pp = 2, .schedule = schedule, .micro = 4});
  all.push_back({.pp = 2, .schedule = ScheduleKind::interleaved, .chunks = 2, .micro = 4});
  all.push_back({.pp = 2, .schedule = ScheduleKind::zb_v, .chunks = 2, .micro = 4});
  all.push_back({.cp = 2});
  all.push_back({.dp = 2, .cp = 2, .zero = 2});
  for (const int tp : {2, 3}) {
    all.push_back({.dp = 2, .pp = 2, .tp = tp, .sp = Switch::on, .micro = 2, .zero = 1});
    all.push_back({.pp = 2, .schedule = ScheduleKind::zb_h1, .tp = tp, .sp = Switch::on, .micro = 4});
  }
  all.push_back({.dp = 2, .pp = 2, .cp = 2, .micro = 2, .zero = 3});
  return all;
}

bool heads_fit(const ModelSpec& spec, const LayoutSpec& layout) {
  return heads_divide(spec.heads, spec.kv_heads, layout.tp) && (layout.tp == 1 || layout.tp <= spec.heads);
}

TEST_P(LoraOf, LearnsInEveryLayoutWhatOneRankLearns) {
  std::vector<std::vector<std::string>> lists{{"all"}};
  if (GetParam().name == "llama" || GetParam().name == "gpt2") lists.push_back(lora_targets(GetParam().spec).back());
  for (const auto& targets : lists) {
    const Learned one = learn(learning_adapters(GetParam().spec, {}, Precision::fp64, targets), kLoraSteps);
    for (const LayoutSpec& layout : lora_layouts()) {
      if (!heads_fit(GetParam().spec, layout)) continue;
      const Replica::Options o = learning_adapters(GetParam().spec, layout, Precision::fp64, targets);
      expect_close(learn(o, kLoraSteps), one, 1e-11, targets.front() + ", " + to_text(layout));
    }
  }
}

// Every family, and 8 heads with 2 key/value heads.
std::vector<NamedSpec> lora_specs() {
  std::vector<NamedSpec> all = tiny_specs();
  all.push_back(cut_specs()[all.size()]);
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, LoraOf, ::testing::ValuesIn(lora_specs()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep::tests
