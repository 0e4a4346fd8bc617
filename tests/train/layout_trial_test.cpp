// `verify` in fp32 and bf16: correct layouts pass whatever the seed, and errors are noticed. tests/slow has the rates.
#include <gtest/gtest.h>

#include <atomic>

#include "spec/layout/layout_toml.h"
#include "support/injected_faults.h"
#include "support/tiny_specs.h"
#include "train/layout_trial.h"

namespace lockstep::tests {
namespace {

std::vector<LayoutSpec> parsed_layouts(std::initializer_list<const char*> texts) {
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
          run, parsed_layouts({"dp=1", "cp=2", "pp=2,micro=4", "tp=2", "dp=4,zero=3,micro=2", "dp=2,dp_kind=central"}),
          {});
      for (const LayoutVerdict& v : report.verdicts)
        EXPECT_FALSE(v.first || v.undecided)
            << tiny_specs()[model].name << ", seed " << seed << ", " << to_text(v.layout) << ": "
            << (v.first ? v.first : v.undecided)->what << ", " << v.rounding->share << " of what is allowed";
    }
}

// What passes in fp32 and what does not, by the size of the error.
TEST(VerifyByRounding, NoticesErrors) {
  struct Expected {
    FaultIn where;
    double smallest;  // that is noticed, whatever the layout
  };
  const RunSpec run = trial_run(wide(tiny_specs()[0].spec), 16, 3, Precision::fp32);
  const std::string tensor = "model.layers.0.mlp.down_proj.weight";
  for (const auto& [where, smallest] :
       {Expected{FaultIn::gradient, 1e-5}, Expected{FaultIn::gradient_element, 1e-3}, Expected{FaultIn::weight, 1e-6},
        Expected{FaultIn::weight_element, 1e-6}, Expected{FaultIn::contribution, 1e-4},
        Expected{FaultIn::contribution_element, 1e-2}})
    for (const char* text : {"dp=2,micro=2", "cp=2", "pp=2,micro=4", "tp=2"})
      for (const double size : {smallest, 10 * smallest}) {
        std::atomic<bool> changed = false;
        const LayoutReport report = compare_layouts(run, parsed_layouts({"dp=1", text}),
                                                    {.steps = 2, .faults = fault(where, size, tensor, changed)});
        EXPECT_TRUE(changed) << text << ", " << name_of(where);
        EXPECT_FALSE(report.ok()) << text << ": " << size << " in " << name_of(where) << " was not noticed";
      }
}

// An error of a third more than is allowed, in fp32 alone: it may be chance, and fp64 says that it is.
TEST(VerifyByRounding, LeavesToFp64WhatItCannotDecide) {
  const RunSpec run = trial_run(wide(tiny_specs()[0].spec), 16, 3, Precision::fp32);
  const std::string tensor = "model.layers.0.mlp.down_proj.weight";
  const auto trial = [&](double size, bool in_double) {
    const auto spoil = [=](const LayoutSpec& layout, Replica& replica, int, std::int64_t step, bool updated) {
      if (layout.ranks() == 1 || step != 1 || updated) return;
      for (const Replica::Named& named : replica.tensors())
        if (named.tensor.name == tensor)
          for (std::int64_t i = 0; i < named.gradient.elements(); ++i) {
            if (named.gradient.dtype() == DType::f32)
              named.gradient.data<float>()[i] = static_cast<float>(named.gradient.data<float>()[i] * (1 + size));
            else if (in_double)
              named.gradient.data<double>()[i] *= 1 + size;
          }
    };
    return compare_layouts(run, parsed_layouts({"dp=1", "cp=2"}), {.steps = 2, .faults = {.spoil = spoil, .wrap = {}}})
        .verdicts[0];
  };
  const double sees = trial(0, false).rounding->sees;
  const LayoutVerdict chance = trial(2 * sees, false), error = trial(2 * sees, true), large = trial(20 * sees, false);
  EXPECT_TRUE(chance.undecided && !chance.first) << chance.rounding->share;
  EXPECT_EQ(chance.undecided->what, "the gradient of " + tensor);
  EXPECT_EQ(chance.undecided->step, 2);
  EXPECT_TRUE(error.first && !error.undecided) << "fp64 has it too";
  EXPECT_TRUE(large.first && large.rounding->certain) << "no need to ask";
}

// Ranks that hold the same values hold the same bits.
TEST(VerifyByRounding, NoticesCopiesThatDrift) {
  const RunSpec run = trial_run(wide(tiny_specs()[0].spec), 16, 3, Precision::fp32);
  for (const char* text : {"dp=2", "tp=2"}) {
    const auto spoil = [](const LayoutSpec&, Replica& replica, int rank, std::int64_t step, bool updated) {
      if (rank != 1 || step != 0 || !updated) return;
      for (const Replica::Named& named : replica.tensors())
        if (named.tensor.name == "model.norm.weight") named.master.data<float>()[0] *= 1 + 0x1p-23F;
    };
    const LayoutReport report =
        compare_layouts(run, parsed_layouts({"dp=1", text}), {.steps = 1, .faults = {.spoil = spoil, .wrap = {}}});
    ASSERT_FALSE(report.ok()) << text;
    EXPECT_NE(report.verdicts[0].first->what.find("on rank 1"), std::string::npos) << report.verdicts[0].first->what;
  }
}

TEST(VerifyByRounding, OfBf16PassesCorrectLayoutsAndNoticesLargeErrors) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const RunSpec run = trial_run(wide(tiny_specs()[0].spec), 16, seed, Precision::bf16);
    const LayoutReport report =
        compare_layouts(run, parsed_layouts({"dp=1", "cp=2", "pp=2,micro=4", "tp=2", "dp=4,zero=2"}), {});
    for (const LayoutVerdict& v : report.verdicts)
      EXPECT_FALSE(v.first || v.undecided) << "seed " << seed << ", " << to_text(v.layout) << ": " << v.rounding->share;
    std::atomic<bool> changed = false;
    EXPECT_FALSE(
        compare_layouts(run, parsed_layouts({"dp=1", "cp=2"}),
                        {.faults = fault(FaultIn::gradient, 0.3, "model.layers.0.mlp.down_proj.weight", changed)})
            .ok());
  }
}

}  // namespace
}  // namespace lockstep::tests
