// compare --levers: each lever alone and together, all as planned; what offload is needed for, and what it is not.
#include "plan/lever_comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/host_link_bench.h"
#include "spec/layout/layout_toml.h"
#include "spec/run/run_toml.h"
#include "support/program.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

// Its windows are small beside its state.
const char* const kLeverRun = R"(
[model]
family = "llama"
vocabulary = 64
layers = 4
width = 256
heads = 4
ffn_width = 512
max_positions = 32
[data]
seq = 32
[data.synthetic]
vocabulary = 64
order = 1
[train]
global_batch = 8
[optim]
warmup = 0
[run]
threads = 1
[memory]
offload_optimizer = "disk"
offload_window = 1
)";

RunSpec lever_run(const std::string& layout, const TemporaryFolder& folder) {
  const std::string narrow[] = {"precision.compute=bf16"};
  RunSpec run = parse_run_toml(kLeverRun, "run", ".", narrow);
  run.layout = parse_layout(layout);
  run.run.out = folder.path();
  return run;
}

std::vector<std::string> names_of(const std::vector<Lever>& levers) {
  std::vector<std::string> names;
  for (const Lever& lever : levers) names.push_back(lever.name());
  return names;
}

TEST(UsualLevers, AreEachAloneAndTheUsualOnesTogether) {
  const TemporaryFolder folder;
  const std::vector<Lever> one = usual_levers(lever_run("micro=1", folder)),
                           many = usual_levers(lever_run("dp=2", folder));
  EXPECT_EQ(one.front().name(), "none");
  EXPECT_EQ(one.front().run.memory.offload_optimizer, Offload::none);
  EXPECT_THAT(
      names_of(one),
      IsSupersetOf({"micro=2", "micro=4", "recompute=elementwise", "recompute=projections", "recompute=full",
                    "recompute=full + recompute_every=2", "gradients=bf16", "moments=bf16", "master=bf16",
                    "offload_optimizer=disk", "offload_optimizer=disk + offload_share=0.5",
                    "recompute=full + offload_optimizer=disk", "micro=2 + recompute=full + offload_optimizer=disk",
                    "offload_activations=disk", "offload_gradients=disk", "zero=3 + offload_parameters=disk",
                    "zero=3 + offload_optimizer=disk + offload_gradients=disk + offload_parameters=disk"}));
  EXPECT_THAT(names_of(one), Not(Contains("zero=3"))) << "of one rank, where it lowers nothing";
  EXPECT_THAT(names_of(many),
              IsSupersetOf({"zero=1", "zero=2", "zero=3", "micro=2 + zero=3 + recompute=full + offload_optimizer=disk",
                            "zero=2 + offload_gradients=disk", "zero=3 + offload_parameters=disk",
                            "zero=3 + offload_optimizer=disk + offload_gradients=disk + offload_parameters=disk",
                            "micro=2 + zero=3 + recompute=full + offload_optimizer=disk + offload_gradients=disk + "
                            "offload_parameters=disk"}));
  EXPECT_EQ(one[*std::ranges::find(one, "zero=3 + offload_parameters=disk", &Lever::name)->without].name(), "none");
  for (const Lever& lever : many) {
    EXPECT_EQ(lever.without.has_value(), lever.run.memory.offloads_to() != Offload::none) << lever.name();
    if (!lever.without) continue;
    RunSpec without = lever.run;
    without.memory = many[*lever.without].run.memory;
    EXPECT_TRUE(without == many[*lever.without].run) << lever.name();
  }
}

TEST(ComparedLevers, AreAsPlannedAndSayWhatOffloadIsNeededFor) {
  const TemporaryFolder folder;
  const RunSpec run = lever_run("dp=2", folder);
  std::map<std::string, std::int64_t> planned;
  for (const Lever& lever : usual_levers(run)) planned[lever.name()] = fullest(plan_stages(lever.run)).peak;
  // None does not fit, and offload alone does; so does zero=3, which then needs no offload.
  const std::int64_t limit = std::max(planned.at("offload_optimizer=disk"), planned.at("zero=3"));
  ASSERT_LT(limit, planned.at("none"));
  const LeverComparison comparison = compare_levers(run, {.steps = 2, .rounds = 2, .memory = limit});
  EXPECT_TRUE(comparison.ok());
  EXPECT_FALSE(comparison.stopped);
  std::set<bool> needed;
  std::optional<double> offloaded_loss, plain_loss;
  for (const ComparedLever& one : comparison.levers) {
    const std::string name = one.lever.name();
    EXPECT_EQ(one.ran.has_value(), planned.at(name) <= limit) << name;
    EXPECT_EQ(one.ran.has_value(), one.why_not.empty()) << name;
    EXPECT_EQ(one.plan.peak, planned.at(name)) << name;
    if (!one.ran) {
      EXPECT_THAT(one.why_not, HasSubstr("are needed on a rank, and ")) << name;
      EXPECT_FALSE(comparison.relative(one)) << name;
      continue;
    }
    const ComparedRank& rank = one.ran->fullest_rank();
    EXPECT_EQ(rank.disk, one.plan.disk) << name;
    EXPECT_EQ(rank.moved, one.plan.moved_in_all()) << name;
    EXPECT_EQ(rank.disk > 0, one.lever.run.memory.offloads_to() == Offload::disk) << name;
    EXPECT_GT(*comparison.relative(one), 0) << name;
    if (one.needed) needed.insert(*one.needed);
    if (name == "offload_optimizer=disk") {
      EXPECT_TRUE(one.needed == true);
    }
    if (name == "micro=2 + zero=3 + recompute=full + offload_optimizer=disk") {
      EXPECT_TRUE(one.needed == false);
    }
    if (name == "zero=3") plain_loss = one.ran->loss;
    if (name == "recompute=full + offload_optimizer=disk" || name == "offload_optimizer=disk" ||
        name == "offload_activations=disk") {
      EXPECT_EQ(offloaded_loss.value_or(one.ran->loss), one.ran->loss);
      offloaded_loss = one.ran->loss;
    }
  }
  EXPECT_EQ(needed, (std::set{false, true})) << "offload that was needed, and offload that was not";
  ASSERT_TRUE(offloaded_loss && plain_loss);
  EXPECT_NEAR(*offloaded_loss, *plain_loss, 1e-2 * *plain_loss);
  EXPECT_EQ(*comparison.relative(*comparison.first()), 1);
}

TEST(ComparedLevers, AreNotAsPlannedWhereAnythingDiffers) {
  const TemporaryFolder folder;
  const LeverComparison comparison = compare_levers(lever_run("micro=1", folder), {.steps = 1, .rounds = 1});
  for (const ComparedLever& one : comparison.levers) {
    if (one.lever.name() != "offload_optimizer=disk") continue;
    ASSERT_TRUE(one.ran && one.ran->ok());
    for (const auto change : {&ComparedRank::host, &ComparedRank::disk, &ComparedRank::peak}) {
      ComparedLayout other = *one.ran;
      other.ranks[0].*change += 1;
      EXPECT_FALSE(other.ok());
    }
    for (const auto way : {&Staging::Traffic::to_device, &Staging::Traffic::from_device}) {
      ComparedLayout other = *one.ran;
      other.ranks[0].moved.*way += 1;
      EXPECT_FALSE(other.ok());
    }
    return;
  }
  FAIL() << "it is not there";
}

class CompareLevers : public ::testing::Test {
 protected:
  CompareLevers() { std::ofstream(folder_ / "run.toml") << kLeverRun; }
  Outcome compare(const std::vector<std::string>& more) const {
    std::vector<std::string> all{"compare", folder_ / "run.toml",          "--levers", "--steps", "1",
                                 "--set",   "run.out=" + (folder_ / "out")};
    all.insert(all.end(), more.begin(), more.end());
    return run_program(all);
  }
  TemporaryFolder folder_;
};

TEST_F(CompareLevers, ShowWhereBytesAreAndWhatTheyCost) {
  const Outcome o = compare({"--memory", "48MiB"});
  ASSERT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_EQ(o.err, "");
  for (const char* part :
       {"a rank may take 48.0 MiB", "\n  none ", "device", "disk", "fits", "moved", "of ceil.", "tokens/s", "relative",
        " not run\n", " needed\n", " not needed\n", "): recompute=full + offload_optimizer=disk\n",
        "ceilings, measured before: ", "each way of reading and writing the disk at once", "the first that fits"})
    EXPECT_THAT(o.out, HasSubstr(part));
  EXPECT_THAT(o.out, Not(HasSubstr("NOT AS PLANNED")));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out")) << "it leaves nothing";
  std::istringstream lines(o.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 130U) << line;
}

TEST_F(CompareLevers, GiveJsonThatAddsUp) {
  const Outcome o = compare({"--json", "--set", "layout.dp=2"});
  ASSERT_EQ(o.code, 0) << o.err;
  const json all = json::parse(o.out);
  EXPECT_EQ(all["ok"], true);
  EXPECT_EQ(all["layout"], "dp=2");
  EXPECT_EQ(all["relative_to"], "none");
  EXPECT_GT(all["ceilings"]["disk_bytes_per_second"], 1e6);
  EXPECT_GT(all["ceilings"]["sent_bytes_per_second"], 1e6);
  EXPECT_EQ(all["ceilings"]["host_bytes_per_second"], nullptr);
  for (const json& one : all["levers"]) {
    const std::string name = one["name"];
    EXPECT_EQ(one["fits"], true) << name;
    for (const char* key : {"device_bytes", "host_bytes", "disk_bytes", "moved_bytes"})
      EXPECT_EQ(one[key], one["measured_" + std::string(key)]) << name << ", " << key;
    std::int64_t tags = 0;
    for (const auto& [tag, bytes] : one["tags"].items()) tags += bytes.get<std::int64_t>();
    EXPECT_GE(tags, one["device_bytes"].get<std::int64_t>()) << name;
    const double tokens = one["tokens_per_second"].get<double>() * one["step_seconds"].get<double>();
    EXPECT_NEAR(tokens, 256, 1e-6) << name;
    EXPECT_EQ(one["disk_bytes"].get<std::int64_t>() > 0, name.find("offload") != std::string::npos) << name;
  }
}

TEST(HostLink, IsMeasuredEachWay) {
  const HostLinkRate rate = measure_host_link(Device::cpu, 8 << 20, 2);
  EXPECT_GT(rate.to_device, 1e8);
  EXPECT_GT(rate.from_device, 1e8);
  EXPECT_GT(rate.both, 1e7);
  EXPECT_LT(rate.both, 2 * std::max(rate.to_device, rate.from_device));
}

}  // namespace
}  // namespace lockstep::tests
