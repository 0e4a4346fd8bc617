// Ranks that were not started alike: all of them end, one line says in what they differ, and nothing is written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <sstream>

#include "support/program.h"
#include "support/run_results.h"

namespace lockstep::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

using Arguments = std::vector<std::string>;

class StartedApart : public ::testing::Test {
 protected:
  StartedApart() { std::ofstream(folder_ / "tiny.toml") << tiny_run(12, 20); }

  Arguments train(const Arguments& more = {}) const {
    Arguments all{"train", folder_ / "tiny.toml", "--out", folder_ / "run"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // One process each, of this program or of another.
  static Outcome together(const std::vector<Arguments>& each, const std::string& program_of_last = LOCKSTEP_BINARY) {
    Arguments line = each.front();
    for (std::size_t i = 1; i < each.size(); ++i) {
      const bool last = i + 1 == each.size();
      line.insert(line.end(), {":", "-n", "1", last ? program_of_last : LOCKSTEP_BINARY});
      line.insert(line.end(), each[i].begin(), each[i].end());
    }
    return Program(line, "/",
                   {LOCKSTEP_MPIRUN, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "1"})
        .wait();
  }
  // What the program itself says; the rest is mpirun's.
  static Arguments own_lines(const Outcome& outcome) {
    Arguments lines;
    std::istringstream text(outcome.err);
    for (std::string line; std::getline(text, line);)
      if (line.starts_with("lockstep: ")) lines.push_back(line.substr(10));
    return lines;
  }
  void expect_refused(const Outcome& outcome, int code, const std::string& words) const {
    EXPECT_EQ(outcome.code, code) << outcome.err;
    const Arguments lines = own_lines(outcome);
    ASSERT_EQ(lines.size(), 1u) << outcome.err;
    EXPECT_THAT(lines[0], HasSubstr(words));
    EXPECT_FALSE(fs::exists(folder_ / "run/checkpoints")) << "something was saved";
  }
  fs::path write(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  Arguments train_on(const fs::path& text, const Arguments& more = {}) const {
    Arguments all = train({"--set", "data.text=" + text.string(), "--set", "model.vocabulary=257"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  TemporaryFolder folder_;
};

TEST_F(StartedApart, WithAnotherSettingNoneTrains) {
  struct Case {
    const char *set, *words;
  };
  for (const Case& one :
       {Case{"optim.lr=0.5", "rank 2 has optim.lr = 0.5, ranks 0-1 have 0.001; start all ranks with the same settings"},
        Case{"train.seed=7", "rank 2 has train.seed = 7, ranks 0-1 have 0;"},
        Case{"data.seq=8", "rank 2 has data.seq = 8, ranks 0-1 have 16;"},
        Case{"precision.compute=bf16", "rank 2 has precision.compute = \"bf16\", ranks 0-1 have \"fp32\";"}}) {
    expect_refused(together({train(), train(), train({"--set", one.set})}), 2, one.words);
    EXPECT_FALSE(fs::exists(folder_ / "run")) << one.set;
  }
}

// Rank 0 alone is to replace what is there: it is still there when the others disagree.
TEST_F(StartedApart, NothingThatWasThereIsLost) {
  write("run/run.toml", tiny_run(12, 20));
  write("run/metrics.jsonl", "of the run before");
  expect_refused(together({train({"--overwrite"}), train()}), 2,
                 "rank 1 has --overwrite = not given, rank 0 has given");
  expect_refused(together({train_on(write("a/text", std::string(4000, 'a')), {"--overwrite"}),
                           train_on(write("b/text", std::string(4000, 'b')), {"--overwrite"})}),
                 4, "the content of its data = ");
  EXPECT_EQ(text_of(folder_ / "run/metrics.jsonl"), "of the run before");
}

// The same path from each rank's own folder, as on two hosts; another content.
TEST_F(StartedApart, WithOtherDataNoneTrains) {
  const std::string text(4000, 'a');
  const Outcome outcome = together({train_on(write("a/text", text)), train_on(write("b/text", text.substr(1) + 'b'))});
  expect_refused(outcome, 4, "give all ranks the same files");
  EXPECT_THAT(outcome.err,
              ContainsRegex("rank 1 has the content of its data = [0-9a-f]{16}, rank 0 has [0-9a-f]{16};"));
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

TEST_F(StartedApart, WithOtherImportedWeightsNoneTrains) {
  const fs::path golden = LOCKSTEP_SOURCE_DIR "/tests/golden/llama-tiny";
  for (const char* name : {"a", "b"}) {
    fs::create_directories(fs::path(folder_ / name));
    for (const char* file : {"config.json", "model.safetensors"})
      fs::copy_file(golden / file, fs::path(folder_ / name) / file);
  }
  {
    std::fstream weights(folder_ / "b/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    weights.seekp(-1, std::ios::end);
    weights.put('\x01');
  }
  const auto from = [&](const std::string& name) {
    return train({"--set", "model.hf=" + (folder_ / name), "--set", "data.seq=8", "--set",
                  "data.synthetic.vocabulary=16", "--set", "layout.tp=2"});
  };
  expect_refused(together({from("a"), from("b")}), 4, "the content of model.hf = ");
}

// What is a rank's own may differ: where its files and its folder are, its threads, and how its layout was said.
TEST_F(StartedApart, WithTheSameUnderOtherPathsAllTrain) {
  const std::string text(4000, 'a');
  fs::create_directory_symlink(folder_.path(), folder_.path() / "linked");
  Arguments other = train_on(write("b/same", text), {"--set", "run.threads=2", "--set", "run.pin=false", "--set",
                                                     "run.deadline=25", "--ranks", "2"});
  other[3] = folder_ / "linked/run";
  const Outcome outcome = together({train_on(write("a/text", text)), other});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(losses_in(folder_ / "run").size(), 8u) << outcome.out;
}

TEST_F(StartedApart, WithAnotherCommandNoneTrains) {
  expect_refused(together({train(), {"bench", "comm"}}), 2,
                 "rank 1 has command = lockstep bench comm, rank 0 has lockstep train; start the same command");
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = together({train(), {"plan", folder_ / "tiny.toml"}});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_NE(outcome.code, 0) << outcome.out;
  EXPECT_LT(seconds, 10) << "the deadline of the start is 20 s";
  // mpirun may notice it first, by its own means.
  EXPECT_THAT(outcome.err, AnyOf(HasSubstr("rank 1 runs 'lockstep plan', which joins no other ranks, and rank 0 waits "
                                           "for it; start the same command on all ranks"),
                                 HasSubstr("did not call \"init\"")))
      << outcome.err;
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

// The program itself, with other sources: as it was on one of two hosts before the last build.
TEST_F(StartedApart, WithAnotherBuildNoneTrains) {
  std::string program = text_of(LOCKSTEP_BINARY);
  const std::string mark = "lockstep build ";
  const std::size_t at = program.find(mark) + mark.size();
  ASSERT_LT(at, program.size());
  program.replace(at, 16, "0123456789abcdef");
  const fs::path other = write("lockstep", program);
  fs::permissions(other, fs::perms::owner_all);
  expect_refused(together({train(), train()}, other), 2,
                 "rank 1 has program = 0.1.0, build 0123456789abcdef, rank 0 has ");
}

// A layout that does not fit the processes is said once.
TEST_F(StartedApart, WhatAllDoWrongIsSaidOnce) {
  expect_refused(together({train({"--ranks", "3"}), train({"--ranks", "3"})}), 2,
                 "mpirun -n 2 for a layout of 3 ranks (dp=3); use -n 3, or leave --ranks and dp out");
  expect_refused(together({train({"--ranks", "3"}), train()}), 2, "rank 1 has layout.dp = 2, rank 0 has 3");
}

}  // namespace
}  // namespace lockstep::tests
