// How long a run is, and how much data there is for it: what is left to do, what cannot be, and what is done twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "spec/run/run_toml.h"
#include "support/program.h"
#include "support/run_results.h"
#include "telemetry/trace.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::size_t lines_in(const std::string& text) { return static_cast<std::size_t>(std::ranges::count(text, '\n')); }

std::string text_in(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

class RunLength : public ::testing::Test {
 protected:
  RunLength() { std::ofstream(folder_ / "run.toml") << tiny_run(4, 30); }
  Outcome train(std::vector<std::string> more, const std::string& out = "out") const {
    std::vector<std::string> all{"train", folder_ / "run.toml", "--out", folder_ / out, "--set", "train.eval_every=0"};
    all.insert(all.end(), more.begin(), more.end());
    return run_program(all);
  }
  TemporaryFolder folder_;
};

TEST_F(RunLength, TheExamplesWarmUpIsCutToFitAShorterRun) {
  const std::vector<std::string> small{"--set", "model.layers=1",    "--set", "model.width=32",
                                       "--set", "model.heads=2",     "--set", "model.kv_heads=2",
                                       "--set", "data.seq=16",       "--set", "train.global_batch=2",
                                       "--set", "train.eval_every=0"};
  const auto example = [&](const std::string& command, std::vector<std::string> more) {
    more.insert(more.begin(), command);
    more.insert(more.end(), small.begin(), small.end());
    return run_program(more);
  };
  const Outcome o = example("train", {"--out", folder_ / "example", "--set", "train.steps=8"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.err, "lockstep: the built-in example's warm-up of 40 steps is cut to 2, since the run has 8\n");
  EXPECT_EQ(read_run_file(folder_ / "example/run.toml").schedule.warmup, 2);
  EXPECT_EQ(losses_in(folder_ / "example").size(), 8u);
  EXPECT_EQ(example("plan", {"--set", "train.steps=39"}).code, 0);
  EXPECT_EQ(example("plan", {"--set", "train.steps=40"}).err, "");  // which it fits
  EXPECT_EQ(example("plan", {"--set", "train.steps=0"}).err, "");
  // What somebody has asked for is not changed.
  const Outcome asked = example("plan", {"--set", "train.steps=8", "--set", "optim.warmup=9"});
  EXPECT_EQ(asked.code, 2);
  EXPECT_THAT(asked.err, HasSubstr("warmup (9) is longer than the run (8 steps)"));
  std::ofstream(folder_ / "own.toml") << example_run_toml();
  EXPECT_EQ(run_program({"plan", folder_ / "own.toml", "--set", "train.steps=8"}).code, 2);
}

TEST_F(RunLength, ResumingAFinishedRunSaysThatNothingIsLeftToDo) {
  ASSERT_EQ(train({}).code, 0);
  const std::string metrics = text_in(folder_ / "out/metrics.jsonl");
  const Outcome again = train({"--resume"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("nothing is left to do: all 6 steps are done; --set train.steps=N"));
  EXPECT_THAT(again.out, Not(HasSubstr("predicted")));  // of a step that did not run
  EXPECT_EQ(text_in(folder_ / "out/metrics.jsonl"), metrics);
  for (const char* ranks : {"1", "2"}) {
    const Outcome ended = train({"--resume", "--ranks", ranks});
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_THAT(ended.out, HasSubstr("nothing is left to do"));
  }
  const Outcome more = train({"--resume", "--set", "train.steps=7"});
  EXPECT_EQ(more.code, 0) << more.err;
  EXPECT_THAT(more.out, Not(HasSubstr("nothing is left")));
  EXPECT_EQ(losses_in(folder_ / "out").size(), 7u);
}

TEST_F(RunLength, FewerStepsThanAreDoneAreRefused) {
  ASSERT_EQ(train({}).code, 0);
  const std::string metrics = text_in(folder_ / "out/metrics.jsonl"), run_file = text_in(folder_ / "out/run.toml");
  for (const char* ranks : {"1", "2"}) {
    const Outcome o = train({"--resume", "--ranks", ranks, "--set", "train.steps=5"});
    EXPECT_EQ(o.code, 2);
    EXPECT_THAT(o.err, HasSubstr("lockstep: train.steps is 5, and "));
    EXPECT_THAT(o.err, HasSubstr("step-00000006 has done 6; use --set train.steps=6 or more"));
    EXPECT_EQ(lines_in(o.err), 1u) << o.err;
  }
  EXPECT_EQ(text_in(folder_ / "out/metrics.jsonl"), metrics);
  EXPECT_EQ(text_in(folder_ / "out/run.toml"), run_file);
  EXPECT_EQ(train({"--resume", "--set", "train.steps=6"}).code, 0);  // the remedy
}

TEST_F(RunLength, ABatchOfMoreSamplesThanThereAreIsSaid) {
  std::ofstream(folder_ / "text.txt") << std::string(1000, 'x');
  const auto on_text = [&](const std::string& out, const std::string& batch) {
    return train({"--set", "model.vocabulary=257", "--set", "data.text=" + (folder_ / "text.txt"), "--set",
                  "data.eval_share=0", "--set", "train.steps=1", "--set", "train.global_batch=" + batch},
                 out);
  };
  const Outcome large = on_text("large", "100");
  ASSERT_EQ(large.code, 0) << large.err;
  const std::string words =
      "the data has 62 samples of 16 tokens to train on and a step takes 100: every step has some of them several "
      "times; use train.global_batch=62 or less, a shorter data.seq, or more data";
  EXPECT_THAT(large.out, HasSubstr(words));
  EXPECT_THAT(text_in(folder_ / "large/log.txt"), HasSubstr(words));
  const Outcome fits = on_text("fits", "62");  // the remedy
  ASSERT_EQ(fits.code, 0) << fits.err;
  EXPECT_THAT(fits.out, Not(HasSubstr("several times")));
}

TEST_F(RunLength, ATraceCountsTheStepsThatItHas) {
  for (const auto& [asked, seen] : {std::pair(2, 2), std::pair(9, 5)}) {  // of six, and the first is not watched
    const std::string out = fmt::format("traced-{}", asked);
    const Outcome o = train({"--layout", "pp=2,micro=2", "--set", fmt::format("run.trace={}", asked)}, out);
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_THAT(o.out, HasSubstr(fmt::format("the timeline of {} steps is in ", seen)));
    const Trace trace = read_trace(folder_ / out + "/trace.json");
    EXPECT_EQ(trace.steps(), static_cast<std::size_t>(seen));
    const auto named = [&](const char* name) { return std::ranges::count(trace.spans, name, &TraceSpan::name); };
    EXPECT_EQ(named("block.0 forward"), 2 * seen);
    EXPECT_EQ(named("head backward weight"), 2 * seen);
    EXPECT_EQ(named("norm"), 2 * seen);  // of two ranks
  }
  const Outcome none = train({"--set", "train.steps=1", "--set", "run.trace=2"}, "none");
  ASSERT_EQ(none.code, 0) << none.err;
  EXPECT_THAT(none.out, HasSubstr("no timeline: the first step is not watched, and there was no other"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "none/trace.json"));
}

// A last stage without a layer: its backward is done by its forward, and the trace can be drawn.
TEST_F(RunLength, ATraceWhoseLastStageIsTheHeadAloneIsDrawn) {
  const Outcome o = train({"--layout", "pp=2,micro=2,stages=2+0", "--set", "run.trace=2"});
  ASSERT_EQ(o.code, 0) << o.err;
  const Outcome drawn = run_program({"schedule", "--from-trace", folder_ / "out/trace.json", "--json"});
  ASSERT_EQ(drawn.code, 0) << drawn.err;
  const auto stages = nlohmann::json::parse(drawn.out)["measured"]["stages"];
  ASSERT_EQ(stages.size(), 2u);
  for (const auto& step : stages[1]["steps"])
    EXPECT_EQ(step["begin"] == step["end"], step["step"] == "backward") << step;
}

}  // namespace
}  // namespace lockstep::tests
