// What was predicted before the run is what the run takes, to the byte.
#include "plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "base/error.h"
#include "kernels/gelu.h"
#include "kernels/matmul.h"
#include "model/slots.h"
#include "model/unit.h"
#include "parallel/gradients.h"
#include "parallel/zero_shards.h"
#include "spec/model/presets.h"
#include "spec/run/run_toml.h"
#include "support/devices.h"
#include "support/program.h"
#include "train/training_run.h"

namespace lockstep::tests {
namespace {

struct Setting {
  std::string preset;
  std::int64_t T, B, micro;
  PrecisionSpec precision;
};

class Presets : public ::testing::TestWithParam<Setting> {};

TEST_P(Presets, TakeWhatWasPredicted) {
  const Setting& s = GetParam();
  RunSpec spec;
  spec.model = *preset(s.preset);
  ASSERT_LE(parameter_count(spec.model), 200'000'000);
  spec.data.synthetic = SyntheticSpec{};
  spec.data.seq = s.T;
  spec.train.global_batch = s.B;
  spec.train.eval_every = 1;
  spec.train.eval_batches = 1;
  spec.layout.micro = s.micro;
  spec.precision = s.precision;
  spec.run.threads = 2;
  const Plan plan = plan_run(spec);

  const TemporaryFolder folder;
  TrainingRun run(spec, Device::cpu, folder.path());
  run.init_weights();
  run.step(0, 1e-3);
  const std::int64_t settled = run.ledger().allocations();
  run.step(s.B, 1e-3);
  EXPECT_EQ(run.ledger().allocations(), settled) << "a steady step takes a buffer";
  run.evaluate();
  EXPECT_EQ(run.ledger().rows(), plan.rows);
  EXPECT_EQ(run.ledger().peak(), plan.peak);
  EXPECT_EQ(run.ledger().current(), plan.steady);
  for (int t = 0; t < kTags; ++t) EXPECT_EQ(run.ledger().peak(static_cast<Tag>(t)), plan.peaks[t]);
}

INSTANTIATE_TEST_SUITE_P(
    UpTo200M, Presets,
    ::testing::Values(Setting{"llama-1m", 64, 4, 1, Precision::fp64}, Setting{"llama-1m", 63, 6, 3, Precision::fp32},
                      Setting{"llama-1m", 17, 6, 6, Precision::bf16}, Setting{"llama-5m", 128, 2, 1, Precision::fp32},
                      Setting{"llama-5m", 33, 4, 2, Precision::bf16}, Setting{"llama-1m", 17, 6, 3, Precision::fp16},
                      Setting{"llama-1m", 32, 6, 3, Precision::fp8},
                      Setting{
                          "llama-1m", 21, 4, 4, {Precision::bf16, StateType::bf16, StateType::bf16, StateType::bf16}},
                      Setting{"bench-a", 64, 2, 2, Precision::fp32}, Setting{"llama-15m", 32, 2, 1, Precision::fp32},
                      Setting{"llama-15m", 16, 4, 4, Precision::bf16}, Setting{"bench-b", 16, 2, 1, Precision::bf16},
                      Setting{"llama-60m", 8, 2, 2, Precision::fp32}, Setting{"llama-125m", 8, 1, 1, Precision::fp32},
                      Setting{"gpt2", 16, 2, 2, Precision::fp32}),
    [](const auto& info) {
      std::string name = info.param.preset + "_" + std::string(name_of(info.param.precision.compute)) + "_" +
                         std::to_string(info.param.micro) + "_" + std::to_string(info.param.T);
      std::ranges::replace(name, '-', '_');
      return name;
    });

// A layer nobody has told the planner about: y = gelu(x · w), with an activation of its own.
class OnlyInThisTest final : public Unit {
 public:
  OnlyInThisTest(Slots& slots, std::int64_t rows, std::int64_t width) : Unit("only here") {
    weight_ = layout_.add({.shape = {width, 3 * width}, .pieces = {{"only.here", {width, 3 * width}}}});
    x_ = slots.add({"x", DType::f32, {rows, width}, {0, Phase::forward}, {0, Phase::weight}});
    inner_ = slots.add({"inner", DType::f32, {rows, 3 * width}, {0, Phase::forward}, {0, Phase::input}});
    y_ = slots.add({"y", DType::f32, {rows, 3 * width}, {0, Phase::forward}, {0, Phase::weight}});
  }
  void forward(const Call& call) const override {
    matmul({.c = call.at[inner_], .a = call.at[x_], .b = call.weight(weight_)}, call.stream);
    gelu_forward({.y = call.at[y_], .x = call.at[inner_]}, call.stream);
  }
  void backward_input(const Call& call) const override {
    gelu_backward({.dx = call.at[y_], .dy = call.at[y_], .x = call.at[inner_]}, call.stream);
  }
  void backward_weight(const Call& call) const override {
    matmul({.c = call.gradient(weight_), .a = call.at[x_], .b = call.at[y_], .transpose_a = true}, call.stream);
  }

 private:
  int weight_;
  Slot x_, inner_, y_;
};

TEST(Plan, ALayerAddedOnlyInATestIsCountedAsItIs) {
  Slots slots;
  const OnlyInThisTest layer(slots, 10, 40);
  const auto run = [&](Memory& memory, Stream& stream) {
    const Buffer gradient = memory.allocate(layer.layout().owned() * 4, Tag::gradient);
    ZeroShard storage(layer.layout(), {.types = storage_types(Precision::fp32), .optimizer = {}}, memory, stream);
    const StepActivations activations(slots, serial_step({.units = 1, .micro = 1}), {.units = 1, .micro = 1}, memory);
    const UnitTensors tensors{{storage.weight(0)},
                              parameters_in(layer.layout(), view(gradient, DType::f32, {layer.layout().owned()}), {})};
    const Call call{tensors, activations.of(0), {}, stream};
    layer.forward(call);
    layer.backward_input(call);
    layer.backward_weight(call);
    return memory.ledger().rows();
  };
  CpuDevice cpu;
  MetaDevice meta;
  Stream& on_cpu = cpu.stream(1);
  const Buffer scratch = meta.memory().allocate(cpu::kScratchBytes, Tag::workspace);
  const auto real = run(cpu.memory(), on_cpu), counted = run(meta.memory(), meta.stream());
  EXPECT_EQ(real, counted);
  EXPECT_EQ(counted.at({Tag::parameter, "only here"}).peak, 4864 * 4);  // 40 x 120, padded to a multiple of 256
  EXPECT_EQ(counted.at({Tag::activation, ""}).peak, (1792 + 4864 + 4864));
  EXPECT_EQ(meta.work().matmul_flops, 2 * 2 * 10 * 40 * 120);
}

TEST(Plan, A405BModelTakesUnderTwoSecondsAndAGibibyte) {
  const auto start = std::chrono::steady_clock::now();
  const Outcome o =
      run_program({"plan", "--json", "--set", "model.preset=llama3.1-405b", "--set", "data.seq=8192", "--set",
                   "train.global_batch=64", "--set", "layout.micro=32", "--set", "precision.compute=bf16"});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_LT(took.count(), 2);
  EXPECT_LT(o.resident_bytes, std::int64_t{1} << 30);
  const auto json = nlohmann::json::parse(o.out);
  EXPECT_EQ(json["parameters"], 405'853'388'800);
  // fp32 master and two moments: 12 bytes a parameter, all of them multiples of 256 here.
  EXPECT_EQ(json["tags"]["optimizer"]["peak"], 405'853'388'800 * 12);
  EXPECT_EQ(json["tags"]["parameter"]["peak"], 405'853'388'800 * 2);
}

// Any number of ranks, with what one of them sends: 2Ψ(N-1)/N by ddp, and by ZeRO 3 the weights twice and the
// gradients.
TEST(Plan, OfAHundredThousandRanksTakesSeconds) {
  const auto start = std::chrono::steady_clock::now();
  const auto plan = [](const std::string& layout, const std::string& batch) {
    const Outcome o =
        run_program({"plan", "--json", "--set", "model.preset=llama3.1-405b", "--set", "data.seq=8192", "--set",
                     "train.global_batch=" + batch, "--set", "precision.compute=bf16", "--layout", layout});
    EXPECT_EQ(o.code, 0) << o.err;
    return nlohmann::json::parse(o.out);
  };
  const auto ddp = plan("dp=4", "4"), zero = plan("dp=100000,zero=3", "100000");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 5);
  const std::int64_t psi = ddp["stored_parameters"];
  EXPECT_EQ(ddp["messages"]["elements"], psi * 3 / 2);
  EXPECT_EQ(ddp["messages"]["bytes"], psi * 3 / 2 * 4);
  EXPECT_EQ(ddp["messages"]["numbers"]["calls"], 2);
  EXPECT_EQ(zero["ranks"], 100000);
  for (const auto& row : zero["messages"]["tensors"]) {
    const double times = row["elements"].get<double>() / static_cast<double>(psi);
    const bool weights = row["op"] == "all_gather";
    EXPECT_EQ(row["dtype"], weights ? "bf16" : "fp32");
    // Once and twice Ψ, less the units that are still whole; parts of whole blocks make it a little more.
    EXPECT_GT(times, weights ? 1.9 : 0.99);
    EXPECT_LT(times, weights ? 2.1 : 1.05);
  }
  EXPECT_LT(zero["tags"]["optimizer"]["peak"], psi / 100000 * 13);
}

// Of layers that are cut between 8 ranks, each has an eighth; what they exchange is apart from what is exchanged
// between parts of the batch.
TEST(Plan, OfCutLayersHasTheirMessages) {
  const std::vector<std::string> arguments{"plan",
                                           "--set",
                                           "model.preset=llama3.1-405b",
                                           "--set",
                                           "data.seq=8192",
                                           "--set",
                                           "train.global_batch=64",
                                           "--set",
                                           "precision.compute=bf16",
                                           "--layout",
                                           "dp=16,tp=8,zero=3,micro=4"};
  const auto start = std::chrono::steady_clock::now();
  const Outcome text = run_program(arguments);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_LT(took.count(), 3);
  for (const char* words : {" by each of 8 tensor-parallel ranks", " by each of 128 ranks", ", of each rank",
                            "\n  dp all_gather ", "\n  tp all_gather ", "\n  tp reduce_scatter ", "\n  numbers "})
    EXPECT_THAT(text.out, ::testing::HasSubstr(words));

  std::vector<std::string> for_json = arguments;
  for_json.push_back("--json");
  const auto json = nlohmann::json::parse(run_program(for_json).out);
  const std::int64_t psi = json["stored_parameters"], part = json["stored_parameters_of_rank"];
  EXPECT_EQ(json["ranks"], 128);
  EXPECT_EQ(psi, 405'853'388'800);
  // Norms are on all ranks.
  EXPECT_EQ(part, (psi - (2 * 126 + 1) * 16384) / 8 + (2 * 126 + 1) * 16384);
  EXPECT_LT(json["tags"]["optimizer"]["peak"], part / 16 * 12 * 1.01);
  std::map<std::pair<std::string, std::string>, std::int64_t> sent;
  for (const auto& row : json["messages"]["tensors"])
    if (row["dtype"] == "bf16") sent[{row["axis"], row["op"]}] += row["elements"].get<std::int64_t>();
  // A micro-batch of one sample: summed and dealt out behind the embedding and a block's two layers, and before them in
  // backward.
  EXPECT_EQ((sent[{"tp", "reduce_scatter"}]), 4 * (4 * 126 + 2) * (8192 * std::int64_t{16384}) * 7 / 8);
  EXPECT_LT((sent[{"dp", "all_gather"}]), part * 21 / 10 * 4);
  EXPECT_GT((sent[{"dp", "all_gather"}]), part * 15 / 16);
}

TEST(Plan, RefusesLayersThatCannotBeCutSo) {
  const auto refusal = [](const std::string& layout) {
    const Outcome o =
        run_program({"plan", "--set", "model.preset=llama-1m", "--set", "data.seq=62", "--layout", layout});
    EXPECT_EQ(o.code, 2) << layout;
    return o.err;
  };
  EXPECT_THAT(refusal("tp=5"), ::testing::HasSubstr("cannot be shared out to tp (5) ranks; use tp = 1, 2"));
  EXPECT_THAT(refusal("cp=4"), ::testing::HasSubstr("seq (62) is not a multiple of 8, which cp (4) asks for"));
  // Tokens need not be a multiple of tp: the first ranks have one more.
  EXPECT_EQ(run_program({"plan", "--set", "model.preset=llama-1m", "--set", "data.seq=61", "--layout", "tp=4"}).code,
            0);
}

TEST(Plan, TakesRanksBesideALayoutThatLeavesDpOpen) {
  const Outcome both = run_program({"plan", "--ranks", "2", "--layout", "dp=4"});
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.err, ::testing::HasSubstr("--ranks 2: --layout dp=4 makes 4 ranks; leave one of the two out"));
  const Outcome refused = run_program({"plan", "--ranks", "3"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, ::testing::HasSubstr("is not a multiple of dp (3)"));
  const Outcome two = run_program({"plan", "--ranks", "2"});
  EXPECT_EQ(two.code, 0);
  EXPECT_THAT(two.out, ::testing::HasSubstr("1.000 Ψ"));
  EXPECT_THAT(run_program({"plan"}).out, ::testing::Not(::testing::HasSubstr("messages")));
}

TEST(Plan, WhatDoesNotFitIsRefusedWithASettingThatDoes) {
  RunSpec spec;
  spec.model = *preset("llama-1m");
  spec.data.synthetic = SyntheticSpec{};
  spec.data.seq = 64;
  spec.train.global_batch = 64;
  spec.run.threads = 1;
  const Plan plan = plan_run(spec);
  EXPECT_NO_THROW(require_fit(spec, plan, plan.peak));
  try {
    require_fit(spec, plan, plan.peak * 2 / 3);
    FAIL() << "it does not fit";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::does_not_fit);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("--set layout.micro="));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("activation"));
  }
  try {
    require_fit(spec, plan, 1000);
    FAIL() << "it does not fit";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("a smaller model"));
  }
  EXPECT_GT(available_memory(), 1 << 20);
}

// A run whose memory is state, not activations.
RunSpec mostly_state() {
  RunSpec spec;
  spec.model = *preset("llama-1m");
  spec.data.synthetic = SyntheticSpec{};
  spec.data.seq = 8;
  spec.train.global_batch = 4;
  spec.train.save_last = false;
  spec.run.threads = 1;
  return spec;
}

std::string fit_refusal(const RunSpec& spec, std::int64_t available) {
  try {
    require_fit(spec, plan_run(spec), available);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

// Where activations are not what is too large, state that ranks cut between them is what helps, and what is named fits.
TEST(Plan, StateThatDoesNotFitIsCutBetweenTheRanksThereAre) {
  RunSpec spec = mostly_state();
  spec.layout.dp = 4;
  std::int64_t before = plan_run(spec).peak;
  for (const std::int64_t zero : {1, 2, 3}) {
    RunSpec cut = spec;
    cut.layout = {.dp = 4, .zero = zero};
    const std::int64_t needed = plan_run(cut).peak;
    ASSERT_LT(needed, before) << zero;
    EXPECT_THAT(fit_refusal(spec, (needed + before) / 2),
                ::testing::HasSubstr(fmt::format("; --set layout.zero={} fits: ", zero)));
    before = needed;
  }
  spec.layout.dp_kind = DpKind::central;
  EXPECT_THAT(fit_refusal(spec, before), ::testing::Not(::testing::HasSubstr("zero")));
}

std::vector<std::string> proposed_in(const std::string& message) {
  static const std::regex kSet("--set ([a-z_.]+=[a-z0-9.]+)");
  std::vector<std::string> sets;
  for (std::sregex_iterator at(message.begin(), message.end(), kSet), end; at != end; ++at) sets.push_back((*at)[1]);
  return sets;
}

// Whatever is proposed fits when it is typed, every lever is tried, and none is proposed only where none helps.
TEST(Plan, EverySettingThatIsProposedFits) {
  RunSpec spec = mostly_state();
  spec.data.seq = 32;
  spec.train.global_batch = 16;
  spec.train.save_last = true;
  spec.layout.dp = 4;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const bool async : {true, false})
    for (const std::int64_t zero : {0, 1, 2, 3})
      for (const std::int64_t micro : {1, 2, 4})
        for (const Recompute level : kRecomputes)
          for (const bool offloads : {false, true}) {
            RunSpec other = spec;
            if (offloads) other.memory.offload_optimizer = Offload::disk;
            other.train.async_save = async;
            other.layout = {.dp = 4, .micro = micro, .zero = zero};
            other.memory.recompute = level;
            least = std::min(least, plan_run(other).peak);
          }
  const std::int64_t needed = plan_run(spec).peak;
  ASSERT_LT(least, needed / 2);
  std::set<std::string> keys;
  for (std::int64_t available = needed - 1; available > least * 9 / 10; available -= (needed - least) / 23) {
    const std::string said = fit_refusal(spec, available);
    const std::vector<std::string> sets = proposed_in(said);
    EXPECT_EQ(sets.empty(), available < least) << said;
    if (sets.empty()) continue;
    EXPECT_LE(plan_run(parse_run_toml(to_toml(spec), "run", ".", sets)).peak, available) << said;
    for (const std::string& set : sets) keys.insert(set.substr(0, set.find('=')));
  }
  EXPECT_THAT(keys, ::testing::IsSupersetOf({"layout.micro", "layout.zero", "memory.recompute", "train.async_save"}));
  // What costs least: to update a shard each, and where a rank is alone, to wait for saves.
  EXPECT_THAT(proposed_in(fit_refusal(spec, needed - 1)), ::testing::ElementsAre("layout.zero=1"));
  spec.layout.dp = 1;
  spec.train.steps = 10'000;
  EXPECT_THAT(proposed_in(fit_refusal(spec, plan_run(spec).peak - 1)),
              ::testing::ElementsAre("train.async_save=false"));
}

// Where layers are cut already, what is left to cut is state, if parts of the batch are other ranks'.
TEST(Plan, StateThatDoesNotFitIsCutBesideLayers) {
  RunSpec spec = mostly_state();
  spec.layout = {.dp = 4, .tp = 2};
  RunSpec cut = spec;
  cut.layout.zero = 1;
  const std::int64_t before = plan_run(spec).peak, needed = plan_run(cut).peak;
  ASSERT_LT(needed, before);
  EXPECT_THAT(fit_refusal(spec, (needed + before) / 2), ::testing::HasSubstr("; --set layout.zero=1 fits: "));
  spec.layout = {.tp = 4};
  EXPECT_THAT(fit_refusal(spec, plan_run(spec).peak / 2), ::testing::Not(::testing::HasSubstr("zero")));
}

// More state than any disk holds: the refusal names the key that offloads less of what is offloaded.
TEST(Plan, StateThatNoDiskHoldsIsRefusedWithTheKeyThatOffloadsLess) {
  const auto refusal = [](Offload MemorySpec::*kind) -> std::string {
    RunSpec spec;
    spec.memory.*kind = Offload::disk;
    Plan plan;
    plan.disk = std::numeric_limits<std::int64_t>::max();
    try {
      require_disk_fit(spec, plan, 1);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  for (const auto kind :
       {&MemorySpec::offload_optimizer, &MemorySpec::offload_gradients, &MemorySpec::offload_parameters})
    EXPECT_THAT(refusal(kind), ::testing::HasSubstr("make memory.offload_share smaller"));
  EXPECT_THAT(refusal(&MemorySpec::offload_activations), ::testing::HasSubstr("memory.offload_blocks"));
}

TEST(Plan, DrawsTheStepOfALayout) {
  const Outcome o = run_program(
      {"plan", "--set", "model.preset=llama-1m", "--set", "data.seq=64", "--layout", "dp=2,zero=3", "--picture"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, ::testing::HasSubstr("embedding  F."));
  EXPECT_THAT(o.out, ::testing::HasSubstr("\nblock.0    =F."));
  EXPECT_EQ(run_program({"plan", "--picture", "--json"}).code, 2);
}

}  // namespace
}  // namespace lockstep::tests
