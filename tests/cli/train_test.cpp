// Training as a user meets it: a run folder, interruptions, kills, full disks, and one clear line for every mistake.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "checkpoint/checkpoint_reader.h"
#include "data/token_file_writer.h"
#include "support/golden.h"
#include "support/program.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

// A model of a few thousand parameters on synthetic data.
const char* const kRunOfTwentySteps = R"(
[model]
family = "llama"
vocabulary = 16
layers = 2
width = 16
heads = 2
ffn_width = 24
max_positions = 32
dropout = 0.1
[data]
seq = 16
[data.synthetic]
vocabulary = 16
order = 1
[train]
steps = 20
global_batch = 4
save_every = 1
[layout]
micro = 2
[optim]
warmup = 0
[run]
threads = 1
)";

class TrainCommand : public ::testing::Test {
 protected:
  TrainCommand() { std::ofstream(folder_ / "tiny.toml") << kRunOfTwentySteps; }
  Arguments train(const Arguments& more = {}, const std::string& out = "run") const {
    Arguments all{"train", folder_ / "tiny.toml", "--out", folder_ / out};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::vector<nlohmann::json> metrics(const std::string& out = "run") const {
    std::ifstream in(folder_ / out + "/metrics.jsonl");
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  std::string state(const std::string& out, const std::string& step) const {
    std::ostringstream text;
    text << std::ifstream(folder_ / out + "/checkpoints/" + step + "/state-00000-of-00001.safetensors").rdbuf();
    return text.str();
  }
  // A token file that any vocabulary holds.
  std::string tokens() const {
    const std::string file = folder_ / "small.tokens";
    TokenFileWriter writer(file, 32);
    std::vector<std::int32_t> ids(4000);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * i % 31);
    writer.add(ids);
    writer.finish();
    return file;
  }
  TemporaryFolder folder_;
};

TEST_F(TrainCommand, LeavesAWholeRunFolder) {
  const Outcome o = run_program(train());
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("equal to the byte"));
  EXPECT_THAT(o.out, HasSubstr("step 20/20"));
  const auto lines = metrics();
  ASSERT_EQ(lines.size(), 20u);
  for (const char* key : {"step", "loss", "loss_z", "grad_norm", "lr", "step_ms", "tokens_per_s", "model_flops_per_s",
                          "mfu", "bytes", "peak_bytes", "time"})
    EXPECT_TRUE(lines[15].contains(key)) << key;
  EXPECT_GT(lines[15]["bytes"]["parameter"], 0);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run/run.toml"));
  EXPECT_EQ(open_newest_whole(folder_ / "run/checkpoints")->progress().step, 20);
  // The resolved run file is a run file.
  EXPECT_EQ(run_program({"plan", folder_ / "run/run.toml"}).code, 0);
}

TEST_F(TrainCommand, AFolderThatHoldsARunIsNotWrittenOver) {
  ASSERT_EQ(run_program(train({"--set", "train.steps=2"})).code, 0);
  const Outcome again = run_program(train());
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, HasSubstr("holds a run already; --resume continues it, --overwrite starts it over"));
  EXPECT_EQ(metrics().size(), 2u);
  EXPECT_EQ(run_program(train({"--overwrite", "--set", "train.steps=3"})).code, 0);
  EXPECT_EQ(metrics().size(), 3u);
  const Outcome more = run_program({"train", "--resume", folder_ / "run", "--set", "train.steps=5"});
  EXPECT_EQ(more.code, 0) << more.err;
  EXPECT_THAT(more.out, HasSubstr("train.steps changes from 3 to 5"));
  EXPECT_EQ(metrics().size(), 5u);
}

TEST_F(TrainCommand, ARunGoesOnInTheFolderThatIsNamed) {
  ASSERT_EQ(run_program(train({"--set", "train.steps=2"})).code, 0);
  std::filesystem::rename(folder_ / "run", folder_ / "moved");
  EXPECT_EQ(run_program({"train", "--resume", folder_ / "moved", "--set", "train.steps=4"}).code, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
  EXPECT_EQ(metrics("moved").size(), 4u);
  // From another's checkpoint into a new folder: the state is saved there even when no step is left to do.
  EXPECT_EQ(run_program({"train", "--resume", folder_ / "moved", "--out", folder_ / "new"}).code, 0);
  EXPECT_EQ(open_newest_whole(folder_ / "new/checkpoints")->progress().step, 4);
  // Into a folder that holds a third run: the two are not mixed.
  ASSERT_EQ(run_program(train({"--set", "train.steps=1"}, "third")).code, 0);
  const Outcome mixed = run_program({"train", "--resume", folder_ / "moved", "--out", folder_ / "third"});
  EXPECT_EQ(mixed.code, 2);
  EXPECT_THAT(mixed.err, HasSubstr("holds a run already"));
  // A run file behind --resume is the run file.
  const Outcome auto_resumed = run_program({"train", "--out", folder_ / "third", "--resume", folder_ / "tiny.toml"});
  EXPECT_EQ(auto_resumed.code, 0) << auto_resumed.err;
  EXPECT_EQ(metrics("third").size(), 20u);
}

TEST_F(TrainCommand, SavesWithoutASnapshotWhenAsked) {
  const Outcome o = run_program(train({"--set", "train.async_save=false", "--set", "train.steps=3"}));
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("equal to the byte"));
  EXPECT_EQ(open_newest_whole(folder_ / "run/checkpoints")->progress().step, 3);
}

TEST_F(TrainCommand, OneProcessTrainsInAFolderAtATime) {
  Program first(train({"--set", "train.steps=1000000"}));
  first.wait_for_output("step       1/");
  const Outcome second = run_program(train({"--resume"}));
  EXPECT_EQ(second.code, 2);
  EXPECT_THAT(second.err, HasSubstr("another process is training in"));
}

TEST_F(TrainCommand, ASignalFinishesTheStepSavesAndExitsWithZero) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string out = "run" + std::to_string(signal);
    Program run(train({"--set", "train.steps=1000000", "--set", "train.save_every=0"}, out));
    run.wait_for_output("step       3/");
    run.signal(signal);
    const Outcome o = run.wait();
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_THAT(o.out, HasSubstr("as asked; --resume continues from there"));
    const auto checkpoint = open_newest_whole(folder_ / out + "/checkpoints");
    ASSERT_TRUE(checkpoint);
    EXPECT_EQ(checkpoint->progress().step, std::ssize(metrics(out)));
  }
}

// A hundred kills at random moments: the newest checkpoint or the one before is always there, whole.
TEST_F(TrainCommand, KilledAtRandomMomentsItLosesNothing) {
  const Arguments long_run{"--set", "train.steps=1000000000", "--resume"};
  std::mt19937 random(11);
  std::int64_t before = 0;
  for (int i = 0; i < 100; ++i) {
    Program run(train(long_run));
    // Half of the kills fall into start-up, the others among steps and after a save.
    if (i % 4 == 1) run.wait_for_output("GFLOP/s  MFU");
    if (i % 4 == 3) run.wait_for_output("checkpoint saved");
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 40000));
    run.signal(SIGKILL);
    const Outcome o = run.wait();
    ASSERT_EQ(o.code, 128 + SIGKILL) << o.err;
    // A step is announced as saved when it is on the disk.
    std::int64_t announced = 0;
    std::istringstream lines(o.out);
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("step ") && line.ends_with(": checkpoint saved")) announced = std::stoll(line.substr(5));
    const auto newest = open_newest_whole(folder_ / "run/checkpoints",
                                          [](const auto& path, const auto& why) { ADD_FAILURE() << path << why; });
    const std::int64_t step = newest ? newest->progress().step : 0;
    ASSERT_GE(step, std::max(before, announced)) << "kill " << i;
    before = step;
  }
  ASSERT_GE(before, 25);
  std::set<std::int64_t> seen;
  for (const auto& line : metrics()) EXPECT_TRUE(seen.insert(line["step"].get<std::int64_t>()).second) << line;
}

TEST_F(TrainCommand, KillsAndRestartsChangeNoBit) {
  const Arguments steady{"--set", "optim.schedule=constant", "--set", "train.steps=60", "--set", "train.keep=100"};
  ASSERT_EQ(run_program(train(steady, "unbroken")).code, 0);
  std::mt19937 random(5);
  for (int i = 0; i < 100; ++i) {
    Arguments going_on = steady;
    going_on.push_back("--resume");
    Program run(train(going_on));
    run.wait_for_output("GFLOP/s  MFU");
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 8000));
    run.signal(SIGKILL);
    if (run.wait().code == 0) break;  // it was faster than the kill: the run is done
  }
  Arguments rest = steady;
  rest.push_back("--resume");
  ASSERT_EQ(run_program(train(rest)).code, 0);
  EXPECT_EQ(state("run", "step-00000060"), state("unbroken", "step-00000060"));
  const auto a = metrics("run"), b = metrics("unbroken");
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i]["loss"], b[i]["loss"]) << i;
}

TEST_F(TrainCommand, ADamagedCheckpointIsPassedOverLoudly) {
  ASSERT_EQ(run_program(train({"--set", "train.steps=4"})).code, 0);
  const std::string file = folder_ / "run/checkpoints/step-00000004/state-00000-of-00001.safetensors";
  {
    std::fstream damaged(file, std::ios::in | std::ios::out | std::ios::binary);
    damaged.seekp(5000);
    damaged.put('!');
  }
  const Outcome o = run_program(train({"--resume", "--set", "train.steps=6"}));
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("skipping"));
  EXPECT_THAT(o.out, HasSubstr("step-00000004"));
  EXPECT_THAT(o.out, HasSubstr("resuming from " + (folder_ / "run/checkpoints/step-00000003")));
}

TEST_F(TrainCommand, ADiskThatStaysFullIsToldAndEndsTheRunAtItsEnd) {
  const std::string disk = folder_ / "disk";
  std::filesystem::create_directory(disk);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=400k") != 0) GTEST_SKIP() << "may not mount a small disk here";
  const Outcome o = run_program({"train", folder_ / "tiny.toml", "--out", disk + "/run", "--set", "train.steps=100",
                                 "--set", "train.keep=1000", "--set", "train.save_retry=0.2"});
  std::int64_t newest = 0;
  std::string damage;
  if (const auto c = open_newest_whole(disk + "/run/checkpoints",
                                       [&](const auto& p, const auto& why) { damage += p.string() + why; }))
    newest = c->progress().step;
  std::string leftovers;
  for (const auto& entry : std::filesystem::directory_iterator(disk + "/run/checkpoints"))
    if (entry.path().filename().string().starts_with(".")) leftovers += entry.path().string();
  umount(disk.c_str());
  EXPECT_EQ(o.code, 5);
  EXPECT_THAT(o.out, HasSubstr("step 100/100")) << "the run continues";
  EXPECT_THAT(o.out, HasSubstr("; the run continues and tries again"));
  EXPECT_THAT(
      o.err,
      HasSubstr(
          "No space left on device; free space there, or name a path on another disk; step 100 could not be saved"));
  EXPECT_THAT(o.err, HasSubstr(fmt::format("the newest checkpoint is of step {}", newest)));
  EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  EXPECT_GT(newest, 0);
  EXPECT_EQ(damage, "");
  EXPECT_EQ(leftovers, "");
}

TEST_F(TrainCommand, ResidentMemoryIsWhatTheLedgerSays) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory is resident too";
#endif
  // A state far larger than the 64 MiB: written, read back and, the second time, loaded.
  for (const char* steps : {"train.steps=1", "train.steps=2"}) {
    const Outcome o = run_program({"train", "--out", folder_ / "large", "--resume", "--set", "model.preset=llama-15m",
                                   "--set", "data.seq=128", "--set", "train.global_batch=2", "--set", steps, "--set",
                                   "optim.warmup=0", "--set", "train.eval_every=1", "--set", "run.threads=2"});
    ASSERT_EQ(o.code, 0) << o.err;
    std::int64_t ledger = 0;
    const auto lines = metrics("large");
    for (const auto& [tag, bytes] : lines.at(0)["peak_bytes"].items()) ledger += bytes.get<std::int64_t>();
    EXPECT_GT(ledger, std::int64_t{400} << 20);
    EXPECT_LE(o.resident_bytes, ledger * 11 / 10 + (64 << 20)) << steps;
    EXPECT_GE(o.resident_bytes, ledger / 2) << steps;  // and the ledger counts what is really there
  }
}

TEST_F(TrainCommand, ValuesThatAreNotFiniteEndTheRunWithTheirName) {
  const Outcome o = run_program(train({"--set", "optim.lr=1000", "--set", "optim.clip=0", "--set", "train.steps=200",
                                       "--set", "optim.weight_decay=100"}));
  EXPECT_EQ(o.code, 1) << o.out;
  EXPECT_THAT(o.out, Not(HasSubstr("not finite"))) << "once on a terminal is enough";
  // The reason is on standard error and in the log, with what there is to resume from; and that is there.
  EXPECT_THAT(o.err, HasSubstr("a value is not finite, nothing was updated; the first was "));
  EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  const std::int64_t newest = open_newest_whole(folder_ / "run/checkpoints")->progress().step;
  EXPECT_THAT(o.err, HasSubstr(fmt::format("the newest checkpoint is of step {}", newest)));
  std::ostringstream log;
  log << std::ifstream(folder_ / "run/log.txt").rdbuf();
  EXPECT_THAT(log.str(), HasSubstr(o.err.substr(o.err.find("step "))));
  EXPECT_EQ(log.str().find("not finite"), log.str().rfind("not finite")) << log.str();
}

std::map<std::string, std::string> tensors_of(const std::string& file) {
  const SafetensorsFile read(file);
  std::map<std::string, std::string> bytes;
  for (const SafetensorsEntry& e : read.entries()) {
    const ConstTensor t = read.tensor(e.name);
    bytes[e.name] = fmt::format("{} [{}] ", e.dtype, fmt::join(e.shape, ",")) +
                    std::string(static_cast<const char*>(t.raw()), static_cast<std::size_t>(t.bytes()));
  }
  return bytes;
}

TEST_F(TrainCommand, AHuggingFaceFolderComesBackByteForByteAfterNoSteps) {
  for (const std::string name : {"llama-tiny", "llama-tied-scaled", "llama-mha-8l", "gpt2-tiny", "qwen2-tiny"}) {
    const std::string golden = kGolden + name;
    const Outcome trained = run_program({"train", "--out", folder_ / name, "--set", "model.hf=" + golden, "--set",
                                         "data.seq=16", "--set", "train.steps=0", "--set", "data.tokens=" + tokens()});
    ASSERT_EQ(trained.code, 0) << trained.err;
    const Outcome exported = run_program({"export", folder_ / name, "--out", folder_ / name + "-hf"});
    ASSERT_EQ(exported.code, 0) << exported.err;
    const auto before = tensors_of(golden + "/model.safetensors"),
               after = tensors_of(folder_ / name + "-hf/model.safetensors");
    EXPECT_EQ(before.size(), after.size());
    EXPECT_TRUE(before == after) << name;
    // And it is a model again.
    EXPECT_EQ(run_program({"inspect", folder_ / name + "-hf"}).code, 0);
    const Outcome again = run_program({"train", "--out", folder_ / name + "-2", "--set",
                                       "model.hf=" + (folder_ / name + "-hf"), "--set", "data.seq=16", "--set",
                                       "train.steps=1", "--set", "optim.warmup=0", "--set", "data.tokens=" + tokens()});
    EXPECT_EQ(again.code, 0) << again.err;
  }
}

TEST_F(TrainCommand, EveryMistakeIsOneLineWithARemedy) {
  std::ofstream(folder_ / "empty.txt").close();
  std::ofstream(folder_ / "short.txt") << "hello";
  std::ofstream(folder_ / "bad.tok") << "these are no tokens, but it is a file";
  std::filesystem::create_directory(folder_ / "nothing");
  std::ofstream(folder_ / "file") << "x";
  ASSERT_EQ(run_program(train({"--set", "train.steps=1"}, "done")).code, 0);
  const std::string toml = folder_ / "tiny.toml", out = folder_ / "out";
  struct Case {
    Arguments arguments;
    int code;
    std::string says;
  };
  const auto with = [&](const Arguments& more) {
    Arguments all{"train", toml, "--out", out};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const std::vector<Case> cases{
      {{"train", folder_ / "absent.toml"}, 2, "cannot open"},
      {{"train", folder_ / "nothing"}, 2, "is a folder"},
      {{"train", toml, toml}, 2, "one argument too many"},
      {{"trian"}, 2, "did you mean 'train'"},
      {with({"--set", "train.stepz=3"}), 2, "'steps'"},
      {with({"--set", "trian.steps=3"}), 2, "'train'"},
      {with({"--set", "train.steps"}), 2, "--set train.steps"},
      {with({"--set", "train.steps=many"}), 2, "whole number"},
      {with({"--set", "train.steps=-1"}), 2, "train.steps"},
      {with({"--set", "data.seq=33"}), 2, "max_positions"},
      {with({"--set", "layout.micro=3"}), 2, "micro"},
      {with({"--set", "layout.cp=5"}), 2, "which cp (5) asks for; use seq = "},
      {with({"--set", "layout.pp=9"}), 2, "use pp = 4 or less"},
      {with({"--layout", "pp=2,schedule=zb-v,chunks=3"}), 2, "use chunks = 2"},
      {with({"--layout", "pp=2,stages=1+7"}), 2, "name 2 numbers that add up to 2"},
      {with({"--ranks", "3"}), 2, "dp (3) times micro (2) is more than global_batch (4)"},
      {with({"--set", "precision.compute=fp9"}), 2, "bf16"},
      {with({"--set", "run.device=gpu"}), 2, "use \"cpu\" or \"cuda\""},
      {with({"--set", "data.text=" + (folder_ / "absent")}), 2, "vocabulary"},
      {with({"--set", "model.vocabulary=257", "--set", "data.text=" + (folder_ / "absent")}), 4, "absent"},
      {with({"--set", "model.vocabulary=257", "--set", "data.text=" + (folder_ / "empty.txt")}), 4, "empty"},
      {with({"--set", "model.vocabulary=257", "--set", "data.text=" + (folder_ / "nothing")}), 4, "no text"},
      {with({"--set", "model.vocabulary=257", "--set", "data.text=" + (folder_ / "short.txt")}), 4, "tokens"},
      {with({"--set", "data.tokens=" + (folder_ / "bad.tok")}), 4, "bad.tok"},
      {with({"--set", "data.tokens=" + (folder_ / "absent.tok")}), 4, "absent.tok"},
      {with({"--set", "model.preset=llama-5n"}), 2, "llama-5m"},
      {with({"--set", "model.hf=" + (folder_ / "nothing")}), 4, "config.json"},
      {with({"--resume", folder_ / "nothing"}), 6, "holds no whole checkpoint"},
      {with({"--resume", "--overwrite"}), 2, "--resume"},
      {with({"--resume", folder_ / "done", "--set", "train.seed=5"}), 2, "train.seed was"},
      {with({"--resume", folder_ / "done", "--set", "model.width=32"}), 2, "model."},
      {{"train", toml, "--out", folder_ / "file"}, 5, "file"},
      {{"train", toml, "--out", "/proc/run"}, 5, "/proc/run"},
      {{"train", "--out", out, "--set", "model.preset=llama3.1-405b"}, 3, "the run needs"},
      {{"train", "--out", out, "--set", "train.global_batch=65536"}, 3, "--set layout.micro="},
      {{"plan", folder_ / "absent.toml"}, 2, "cannot open"},
      {{"plan", "--set", "model.preset=gpt3"}, 2, "preset"},
  };
  for (const Case& c : cases) {
    const Outcome o = run_program(c.arguments);
    std::string command;
    for (const std::string& word : c.arguments) command += word + " ";
    EXPECT_EQ(o.code, c.code) << command << "\n" << o.err;
    EXPECT_THAT(o.err, HasSubstr(c.says)) << command;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << command << "\n" << o.err;
    EXPECT_THAT(o.err, HasSubstr(";")) << command;  // a remedy
  }
}

}  // namespace
}  // namespace lockstep::tests
