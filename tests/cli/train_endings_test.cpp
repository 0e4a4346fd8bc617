// However a run ends, its reason is on standard error and in log.txt, and what is good is on the disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/fake_state.h"
#include "checkpoint/safetensors.h"
#include "data/token_file_writer.h"
#include "support/golden.h"
#include "support/program.h"
#include "support/run_results.h"
#include "support/small_disk.h"

namespace lockstep::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

class TrainEndings : public ::testing::Test {
 protected:
  TrainEndings() { std::ofstream(folder_ / "tiny.toml") << tiny_run(6, 5); }
  Arguments train(const Arguments& more, const std::string& out = "run") const {
    Arguments all{"train", folder_ / "tiny.toml", "--out", folder_ / out, "--set", "train.eval_every=0"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Arguments endless(const Arguments& more = {}) const {
    Arguments all =
        train({"--set", "train.steps=1000000", "--set", "train.save_every=0", "--set", "optim.schedule=constant"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::string log(const std::string& out = "run") const { return text_of(folder_ / (out + "/log.txt")); }
  std::int64_t newest(const std::string& out = "run") const {
    const auto found = open_newest_whole(folder_ / (out + "/checkpoints"));
    return found ? found->progress().step : -1;
  }
  // Of a copy of a golden folder, one element of one tensor is changed.
  std::string imported_with_nan(const std::string& tensor) const {
    const std::string to = folder_ / "hf";
    fs::copy(kGolden + "llama-tiny", to, fs::copy_options::recursive);
    std::int64_t at = 0;
    {
      const SafetensorsFile file(to + "/model.safetensors");
      at = file.find(tensor)->begin + 4 * 11;
    }
    std::fstream bytes(to + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(at);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    bytes.write(reinterpret_cast<const char*>(&nan), sizeof nan);
    return to;
  }
  TemporaryFolder folder_;
};

TEST_F(TrainEndings, ImportedWeightsThatAreNotFiniteAreRefusedByName) {
  const std::string tensor = "model.layers.1.mlp.up_proj.weight", hf = imported_with_nan(tensor);
  for (const std::string ranks : {"1", "3"}) {
    const Outcome o = run_program(train(
        {"--set", "model.hf=" + hf, "--set", "data.synthetic.vocabulary=16", "--set", "data.seq=8", "--ranks", ranks},
        "run" + ranks));
    EXPECT_EQ(o.code, 4) << o.out << o.err;
    EXPECT_THAT(o.err, AllOf(HasSubstr("tensor '" + tensor + "' is not finite (element 11 is nan)"), HasSubstr("; ")));
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
    EXPECT_FALSE(fs::exists(folder_ / ("run" + ranks) + "/run.toml"));
  }
}

TEST_F(TrainEndings, ABadTokenIsToldAndTheStepsBeforeItAreSaved) {
  const std::string file = folder_ / "bad.tokens";
  TokenFileWriter writer(file, 16);
  std::vector<std::int32_t> ids(100 * 8 + 1);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * i % 13);
  writer.add(ids);
  writer.finish();
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekp(64 + 8 * 70 + 3);
  bytes.put(99);
  bytes.close();
  for (const std::string ranks : {"1", "3"}) {
    const std::string out = "run" + ranks;
    const Outcome o = run_program(train({"--set", "data.tokens=" + file, "--set", "data.eval_share=0", "--set",
                                         "data.seq=8", "--set", "train.steps=100", "--ranks", ranks},
                                        out));
    EXPECT_EQ(o.code, 4) << o.out << o.err;
    EXPECT_THAT(o.err, AllOf(HasSubstr("token 563 has id 99, but the vocabulary is 16; copy or make the file again")));
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
    EXPECT_THAT(log(out), HasSubstr("token 563 has id 99"));
    EXPECT_GT(newest(out), 0);
    EXPECT_THAT(o.err,
                HasSubstr(fmt::format("after step {}: the newest checkpoint is of step {}", newest(out), newest(out))));
  }
}

TEST_F(TrainEndings, WhereAllCheckpointsAreDamagedNothingIsTouched) {
  ASSERT_EQ(run_program(train({"--set", "train.steps=4", "--set", "train.save_every=2"})).code, 0);
  for (const char* step : {"step-00000002", "step-00000004"}) {
    std::fstream file(folder_ / ("run/checkpoints/" + std::string(step) + "/state-00000-of-00001.safetensors"),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(3000);
    file.put('!');
  }
  const auto before = checkpoint_tests::everything_in(folder_ / "run");
  for (const Arguments& resume : {Arguments{"--resume"}, Arguments{"--resume", folder_ / "run"}}) {
    const Outcome o = run_program(train(resume));
    EXPECT_EQ(o.code, 6) << o.out << o.err;
    EXPECT_THAT(o.err, AllOf(HasSubstr("step-00000002 ("), HasSubstr("step-00000004 (")));
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
    EXPECT_TRUE(checkpoint_tests::everything_in(folder_ / "run") == before);
  }
  // Begun anew where that is asked for.
  EXPECT_EQ(run_program(train({"--overwrite", "--set", "train.steps=1"})).code, 0);
}

TEST_F(TrainEndings, WhereNoneWasEverCompletedAResumeBeginsAtZero) {
  fs::create_directories(folder_ / "run/checkpoints/.partial-step-00000002");
  std::ofstream(folder_ / "run/checkpoints/.partial-step-00000002/state-00000-of-00001.safetensors") << "half";
  const Outcome o = run_program(train({"--resume", "--set", "train.steps=3"}));
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("no checkpoint there yet: the run begins at step 0"));
  EXPECT_EQ(newest(), 3);
}

// Schedulers warn with these before they take the machine away.
TEST_F(TrainEndings, EverySignalOfTheListSavesAndEnds) {
  for (const int signal : {SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) {
    Program run(endless({"--overwrite"}));
    run.wait_for_output("step       3/");
    run.signal(signal);
    const Outcome o = run.wait();
    EXPECT_EQ(o.code, 0) << signal << o.err;
    EXPECT_THAT(o.out, HasSubstr(std::string("by SIG") + sigabbrev_np(signal) + " as asked; --resume"));
    EXPECT_GE(newest(), 3);
    EXPECT_THAT(log(), HasSubstr(fmt::format("stopped after step {} by SIG{}", newest(), sigabbrev_np(signal))));
  }
}

TEST_F(TrainEndings, TheListOfSignalsIsTheRuns) {
  // Not in the list: the system's own way, which is to kill.
  Program killed(endless({"--set", "run.stop_signals=[\"USR1\"]"}));
  killed.wait_for_output("step       3/");
  killed.signal(SIGUSR2);
  EXPECT_EQ(killed.wait().code, 128 + SIGUSR2);
  Program stopped(endless({"--overwrite", "--set", "run.stop_signals=ALRM"}));
  stopped.wait_for_output("step       3/");
  stopped.signal(SIGALRM);
  EXPECT_EQ(stopped.wait().code, 0);
  const Outcome wrong = run_program(endless({"--overwrite", "--set", "run.stop_signals=[\"USR1\", \"SIGSTOP\"]"}));
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, AllOf(HasSubstr("'SIGSTOP'"), HasSubstr("use some of SIGHUP, ")));
  EXPECT_THAT(run_program(endless({"--set", "run.stop_signals=[\"USR1\", \"SIGUSR1\"]"})).err,
              HasSubstr("stop_signals has SIGUSR1 twice; name it once"));
}

TEST_F(TrainEndings, ASignalThatIsIgnoredAtTheStartStaysIgnored) {
  Program run(endless(), "/", {"nohup"});
  run.wait_for_output("step       3/");
  run.signal(SIGHUP);
  run.wait_for_output(fmt::format("step {:>7}/", losses_in(folder_ / "run").size() + 20));
  EXPECT_EQ(newest(), -1) << "it has not ended";
  run.signal(SIGTERM);
  const Outcome o = run.wait();
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("by SIGTERM as asked"));
}

// A scheduler warns, and sends SIGTERM while the save may still be under way: that is not a second wish.
TEST_F(TrainEndings, OnlyASecondInterruptOrTermEndsAtOnce) {
  Program run(endless());
  run.wait_for_output("step       3/");
  for (const int signal : {SIGUSR1, SIGUSR1, SIGHUP, SIGTERM}) run.signal(signal);
  EXPECT_EQ(run.wait().code, 0);
  EXPECT_GE(newest(), 3);
  // Stopped while both are sent: they are heard one after the other, and nothing between them.
  Program twice(endless({"--overwrite"}));
  twice.wait_for_output("step       3/");
  twice.signal(SIGSTOP);
  twice.signal(SIGTERM);
  twice.signal(SIGINT);
  twice.signal(SIGCONT);
  const Outcome o = twice.wait();
  EXPECT_EQ(o.code, 130);
  EXPECT_THAT(o.err, HasSubstr("a second signal: ended at once"));
  EXPECT_THAT(log(), HasSubstr("a second signal: ended at once"));
}

// Weights that are finite and too large to compute with: a run that learns nothing from there leaves the checkpoints as
// they are, however often it is tried.
TEST_F(TrainEndings, ARunThatLearnsNothingPushesNoCheckpointOut) {
  const std::vector<std::string> base{"train", folder_ / "tiny.toml", "--out", folder_ / "run",
                                      "--set", "optim.name=sgd",      "--set", "train.keep=2",
                                      "--set", "train.eval_every=0"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = base;
    all.insert(all.end(), more.begin(), more.end());
    return run_program(all);
  };
  const auto checkpoints = [&] {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "run/checkpoints"))
      names.insert(entry.path().filename());
    return names;
  };
  // A decay of more than the weight itself, step after step, until a product of two weights is too large.
  const Outcome grown = with({"--set", "train.steps=99", "--set", "train.save_every=0", "--set", "optim.lr=1000",
                              "--set", "optim.weight_decay=0.1", "--set", "optim.schedule=constant"});
  ASSERT_EQ(grown.code, 1) << grown.out << grown.err;
  const std::set<std::string> before = checkpoints();
  ASSERT_FALSE(before.empty());
  for (int i = 0; i < 3; ++i) {
    const Outcome o = with({"--resume", "--set", "train.steps=99", "--set", "train.save_every=0"});
    EXPECT_EQ(o.code, 1) << o.err;
    EXPECT_THAT(o.err, HasSubstr(fmt::format("the newest checkpoint is of step {}:", newest())));
    EXPECT_EQ(checkpoints(), before);
  }
}

// As timeout(1) does it: to the process, then to its group.
TEST_F(TrainEndings, TheSameSignalTwiceAtOnceIsOneWish) {
  const auto code_after = [&](int pause) {
    Program run({"train", "--out", folder_ / "slow", "--set", "train.global_batch=192", "--set", "run.threads=1",
                 "--set", "train.steps=100", "--overwrite"});  // steps of seconds
    run.wait_for_output("step   1/");
    run.signal(SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(pause));
    run.signal(SIGTERM);
    return run.wait().code;
  };
  EXPECT_EQ(code_after(20), 0);
  int code = 0;
  for (const int pause : {500, 700, 1000, 1400})  // on a full machine the first may be heard late
    if (code = code_after(pause); code == 130) break;
  EXPECT_EQ(code, 130);
}

TEST_F(TrainEndings, AReaderThatGoesEndsTheRunAfterASave) {
  // The pipe's reader takes three lines and goes.
  const Outcome o = run_in_shell("train " + (folder_ / "tiny.toml") + " --out " + (folder_ / "run") +
                                 " --set train.eval_every=0 --set train.save_every=0 --set train.steps=1000000"
                                 " --set optim.schedule=constant 2>" +
                                 (folder_ / "err") + " | head -n 3 >/dev/null");
  EXPECT_EQ(o.code, 0) << "head's";
  EXPECT_GE(newest(), 0);
  EXPECT_THAT(log(), HasSubstr("standard output is closed: the run saves and ends"));
  std::ostringstream err;
  err << std::ifstream(folder_ / "err").rdbuf();
  EXPECT_EQ(err.str(),
            fmt::format("lockstep: standard output was closed by its reader: the run has saved after step {} "
                        "and ended; `lockstep train --resume {}` continues it\n",
                        newest(), folder_ / "run"));
}

// The whole run folder is on it: metrics and log as well.
TEST_F(TrainEndings, ADiskThatIsFullForAWhileCostsNothing) {
  for (const bool async : {true, false}) {
    const std::string out = async ? "async" : "sync";
    const SmallDisk disk(folder_ / out, "size=64m");  // more than the run itself writes meanwhile
    if (!disk) GTEST_SKIP() << "this user may not mount a small tmpfs";
    Program run(train({"--set", "train.steps=1000000", "--set", "train.save_every=20", "--set",
                       "optim.schedule=constant", "--set", fmt::format("train.async_save={}", async)},
                      out));
    run.wait_for_output("step 20: checkpoint saved");
    disk.fill();
    run.wait_for_output("checkpoint not saved");
    run.wait_for_output("metrics.jsonl: write failed: No space left on device");
    disk.empty();
    run.wait_for_output("metrics.jsonl is written again");
    run.signal(SIGTERM);
    const Outcome o = run.wait();
    EXPECT_EQ(o.code, 0) << o.out << o.err;
    EXPECT_THAT(
        o.out,
        AllOf(HasSubstr("No space left on device; free space there, or name a path on another disk; the run continues"),
              Not(HasSubstr("could not be saved"))));
    EXPECT_THAT(log(out), AllOf(HasSubstr("checkpoint not saved"), HasSubstr("as asked")))
        << "written when there was room";
    const RunResults results = results_in(folder_ / out);
    EXPECT_EQ(newest(out), std::ssize(results.losses)) << "no line of a step is missing";
  }
}

}  // namespace
}  // namespace lockstep::tests
