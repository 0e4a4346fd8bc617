// `verify` in fp32 and bf16: correct layouts pass whatever the seed, and errors are noticed. tests/slow has the rates.
#include <gtest/gtest.h>

#include "spec/layout_toml.h"
#include "support/injected_faults.h"
#include "support/tiny_specs.h"
#include "train/layout_trial.h"

namespace lockstep::tests {
namespace {

std::vector<LayoutSpec> layouts(std::initializer_list<const char*> texts) {
  std::vector<LayoutSpec> all;
  for (const char* text : texts) all.push_back(parse_layout(text));
  return all;
}

ModelSpec wide(const ModelSpec& tiny) {
  ModelSpec spec = tiny;
  spec.width = 64;
  spec.heads = 4;
  spec.kv_heads = tiny.family == Family::gpt2 ? 4 : 2;
  spec.head_width = 16;
  spec.ffn_width = 96;
  spec.vocabulary = 64;
  spec.init_std = 0.02;
  return spec;
}

TEST(VerifyByRounding, RaisesNoFalseAlarm) {
  for (const std::size_t model : {0U, 4U, 6U, 7U})  // Llama, Qwen2, GPT-2 without and with dropout
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      const RunSpec run = trial_run(wide(tiny_specs()[model].spec), 16, seed, Precision::fp32);
      const LayoutReport report = compare_layouts(
          run, layouts({"dp=1", "cp=2", "pp=2,micro=4", "tp=2", "dp=4,zero=3,micro=2", "dp=2,dp_kind=central"}), {});
      for (const LayoutVerdict& v : report.verdicts)
        EXPECT_FALSE(v.first || v.undecided)
            << tiny_specs()[model].name << ", seed " << seed << ", " << to_text(v.layout) << ": "
            << (v.first ? v.first : v.undecided)->what << ", " << v.rounding->share << " of what is allowed";
    }
}

}  // namespace
}  // namespace lockstep::tests
