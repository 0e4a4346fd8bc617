// A plan takes seconds whatever it is of: as long as its lists of actions, and no longer; or it is refused.
//
// Times are of the processor, of the program as a user runs it: other work on the machine is not in them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <nlohmann/json.hpp>

#include "spec/pipeline/schedule.h"
#include "support/program.h"
#include "support/sanitizer.h"

namespace lockstep::tests {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

struct Timed {
  Outcome outcome;
  double seconds;
};

Timed timed(const std::vector<std::string>& arguments) {
  const auto spent = [] {
    rusage usage{};
    getrusage(RUSAGE_CHILDREN, &usage);
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
  };
  const double before = spent();
  Outcome outcome = run_program(arguments);
  return {std::move(outcome), spent() - before};
}

std::vector<std::string> of_model(const std::string& preset, int micro, const std::string& layout) {
  return {"plan",     "--json",
          "--set",    "model.preset=" + preset,
          "--set",    "data.seq=8192",
          "--set",    "precision.compute=bf16",
          "--set",    "train.global_batch=" + std::to_string(micro),
          "--layout", layout + ",micro=" + std::to_string(micro)};
}

TEST(PlanScale, A405BModelInAPipelineOf256MicroBatchesTakesTwoSecondsAndAGibibyte) {
  for (const ScheduleKind kind : kScheduleKinds) {
    const Timed plan = timed(of_model("llama3.1-405b", 256, "pp=16,tp=8,schedule=" + std::string(name_of(kind))));
    ASSERT_EQ(plan.outcome.code, 0) << plan.outcome.err;
    EXPECT_LT(plan.seconds, 2 * kSlowdown) << name_of(kind);
    if (!kUnderSanitizer) {
      EXPECT_LT(plan.outcome.resident_bytes, kGiB) << name_of(kind);
    }
  }
}

// Four times the micro-batches, hardly more than four times the time; and in 1f1b not a byte of activations more.
TEST(PlanScale, GrowsWithMicroBatchesAsTheyDo) {
  const auto of = [](int micro) { return timed(of_model("llama3-70b", micro, "pp=2,tp=8")); };
  const auto activations = [](const Timed& plan) {
    return nlohmann::json::parse(plan.outcome.out)["tags"]["activation"]["peak"].get<double>();
  };
  const Timed some = of(64), many = of(256);
  EXPECT_LT(many.seconds, 6 * some.seconds) << some.seconds << " s of 64";
  EXPECT_NEAR(activations(many), activations(some), 0.02 * activations(some));
}

struct Extreme {
  const char* what;
  std::vector<std::string> sets;
  std::string layout;
};

// Whatever a run file may say: an answer or a refusal of one line.
TEST(PlanScale, ExtremeSizesAreAnsweredOrRefused) {
  const std::vector<Extreme> extremes{
      {"samples of 2^31 - 1 tokens", {"model.max_positions=2147483647", "data.seq=2147483647"}, ""},
      {"and a model of ordinary size",
       {"model.preset=llama3-70b", "model.max_positions=2147483647", "data.seq=2147483647"},
       ""},
      {"a batch of many", {"train.global_batch=1048576"}, ""},
      {"and as many micro-batches", {"train.global_batch=1048576"}, "micro=1048576"},
      {"or nearly as many", {"train.global_batch=20000"}, "micro=20000"},
      {"65,536 layers", {"model.layers=65536"}, ""},
      {"a thousand", {"model.layers=1000"}, ""},
      {"in as many stages", {"model.layers=65536"}, "pp=65536"},
      {"or 1,000 stages", {"model.layers=65536", "train.global_batch=1000"}, "pp=1000,micro=1000"},
      {"and micro-batches", {"model.layers=65536", "train.global_batch=256"}, "micro=256"},
      {"many heads", {"model.heads=1048576", "model.kv_heads=1048576", "model.head_width=2"}, ""},
      {"a wide layer", {"model.ffn_width=1099511627776"}, ""},
      {"a wide model", {"model.width=1099511627776"}, ""},
      {"many ranks", {"train.global_batch=100000"}, "dp=100000,zero=3"},
      {"in a pipeline", {"model.layers=16", "train.global_batch=62500"}, "dp=62500,pp=16"},
      {"many tensor ranks",
       {"model.heads=4096", "model.kv_heads=4096", "model.head_width=2", "data.seq=4096", "model.max_positions=4096"},
       "tp=4096"},
  };
  for (const auto& [what, sets, layout] : extremes) {
    std::vector<std::string> arguments{
        "plan", "--json", "--set", "data.example=false", "--set", "data.synthetic.vocabulary=64"};
    for (const std::string& set : sets) arguments.insert(arguments.end(), {"--set", set});
    if (!layout.empty()) arguments.insert(arguments.end(), {"--layout", layout});
    const Timed plan = timed(arguments);
    EXPECT_LT(plan.seconds, 2 * kSlowdown) << what;
    if (!kUnderSanitizer) {
      EXPECT_LT(plan.outcome.resident_bytes, kGiB) << what;
    }
    EXPECT_THAT(plan.outcome.code, ::testing::AnyOf(0, 2, 3)) << what << ": " << plan.outcome.err;
    if (plan.outcome.code == 0) {
      EXPECT_THAT(plan.outcome.out, ::testing::Not(::testing::HasSubstr(": -"))) << what << ": a count has overflowed";
    } else {
      EXPECT_EQ(std::ranges::count(plan.outcome.err, '\n'), 1) << what << ": " << plan.outcome.err;
    }
  }
}

}  // namespace
}  // namespace lockstep::tests
