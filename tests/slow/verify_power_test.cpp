// How often `verify` is wrong: false alarms over seeds, models and layouts, and the share of injected errors that it
// notices, by their size. Prints the tables of bench/results/2026-11-16-verify.md.
#include <gtest/gtest.h>

#include <map>

#include "spec/layout/layout_toml.h"
#include "spec/model/presets.h"
#include "support/injected_faults.h"
#include "support/tiny_specs.h"
#include "train/layout_trial.h"

namespace lockstep::tests {
namespace {

struct Subject {
  std::string name;
  ModelSpec spec;
  std::int64_t seq;
};

std::vector<Subject> subjects() {
  ModelSpec llama = *preset("llama-1m");
  llama.layers = 3;
  ModelSpec gpt2 = tiny_specs()[6].spec;
  gpt2.width = 64, gpt2.heads = gpt2.kv_heads = 4, gpt2.head_width = 16, gpt2.ffn_width = 256, gpt2.vocabulary = 257;
  gpt2.init_std = 0.02;
  ModelSpec qwen3 = tiny_specs()[5].spec;
  return {{"llama-0.8m", llama, 32}, {"gpt2-0.1m", gpt2, 32}, {"qwen3-tiny", qwen3, 12}};
}

std::vector<LayoutSpec> layouts(const std::vector<std::string>& texts) {
  std::vector<LayoutSpec> all;
  for (const std::string& text : texts) all.push_back(parse_layout(text));
  return all;
}

struct Spread {
  std::vector<double> shares;
  int alarms = 0, undecided = 0;

  std::string text() {
    std::ranges::sort(shares);
    return fmt::format("{} | {:.2f} | {:.2f} | {} | {}", shares.size(), shares[shares.size() / 2], shares.back(),
                       undecided, alarms);
  }
};

TEST(VerifyPower, RaisesNoFalseAlarm) {
  const std::vector<std::string> texts{"dp=1",
                                       "cp=2",
                                       "pp=2,micro=4",
                                       "tp=2",
                                       "dp=4,micro=2",
                                       "dp=4,zero=3",
                                       "dp=8,reduce=ring",
                                       "pp=2,cp=2,tp=2,micro=2",
                                       "dp=2,tp=2,sp=off"};
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  fmt::print(
      "| precision | model | checks | of allowed: median | largest | undecided | alarms "
      "|\n|---|---|---|---|---|---|---|\n");
  for (const auto& [precision, seeds] : {std::pair{Precision::fp32, 20}, std::pair{Precision::bf16, 5}})
    for (const Subject& subject : subjects()) {
      std::vector<std::string> fitting = texts;
      if (subject.name == "qwen3-tiny")
        fitting = {"dp=1", "cp=3", "pp=2,micro=4", "tp=3", "dp=4,zero=2,micro=2", "dp=2,cp=2"};
      Spread spread;
      for (int seed = 1; seed <= seeds; ++seed) {
        const RunSpec run = trial_run(subject.spec, subject.seq, static_cast<std::uint64_t>(seed), precision);
        for (const LayoutVerdict& v : compare_layouts(run, layouts(fitting), {}).verdicts) {
          spread.shares.push_back(v.rounding->share);
          spread.undecided += v.undecided.has_value();
          spread.alarms += v.first.has_value();
          if (v.first || v.undecided)
            fmt::print("{} {} seed {}: {}\n", name_of(precision), subject.name, seed, to_text(v.layout));
        }
      }
      fmt::print("| {} | {} | {} |\n", name_of(precision), subject.name, spread.text());
      std::fflush(stdout);
      EXPECT_EQ(spread.alarms, 0);
    }
}

TEST(VerifyPower, NoticesErrorsOfTheSizeThatItSays) {
  fmt::print("| precision | error in | 1e-1 | 1e-2 | 1e-3 | 1e-4 | 1e-5 | 1e-6 |\n|---|---|---|---|---|---|---|---|\n");
  for (const auto& [precision, seeds] : {std::pair{Precision::fp32, 2}, std::pair{Precision::bf16, 1}})
    for (const FaultIn where : kFaults) {
      std::string row = fmt::format("| {} | {} |", name_of(precision), name_of(where));
      for (const double size : {1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6}) {
        if (precision == Precision::fp32 && size > 1e-2) {
          row += " |";
          continue;
        }
        int noticed = 0, all = 0, turn = 0;
        for (const Subject& subject : subjects()) {
          if (subject.name == "llama-0.8m" && precision == Precision::bf16) continue;
          std::vector<std::string> names;
          for (const LogicalTensor& t : logical_tensors(Model(subject.spec, 1, subject.seq, DType::f32)))
            names.push_back(t.name);
          for (int seed = 1; seed <= seeds; ++seed)
            for (const char* text : {"dp=2,micro=2", "cp=2", "pp=2,micro=4"}) {
              const std::size_t picked = static_cast<std::size_t>(seed * 7 + turn) % names.size();
              const RunSpec run = trial_run(subject.spec, subject.seq, static_cast<std::uint64_t>(seed), precision);
              std::atomic<bool> changed = false;
              const LayoutReport report =
                  compare_layouts(run, layouts({"dp=1", text}), {.faults = fault(where, size, names[picked], changed)});
              ++turn;
              if (!changed) continue;  // an element that was zero
              noticed += !report.ok();
              ++all;
            }
        }
        row += fmt::format(" {}/{} |", noticed, all);
        // The update is held to its bits in every precision; gradients to what rounding leaves.
        const bool weight = where == FaultIn::weight || where == FaultIn::weight_element;
        const bool element = where == FaultIn::gradient_element || where == FaultIn::contribution_element;
        const double surely = weight ? 1e-6 : precision != Precision::fp32 ? 1 : element ? 1e-3 : 1e-5;
        if (size >= 0.99 * surely) {
          EXPECT_EQ(noticed, all) << name_of(where) << ", " << size << ", " << name_of(precision);
        }
      }
      fmt::print("{}\n", row);
      std::fflush(stdout);
    }
}

}  // namespace
}  // namespace lockstep::tests
