// The command as a user meets it: its output, its exit codes, and one clear line for every mistake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "support/golden.h"
#include "support/program.h"
#include "support/sanitizer.h"

namespace lockstep::tests {
namespace {

TEST(VerifyCommand, SaysYesWithExitCodeZero) {
  const Outcome o = run_in_shell("verify --reference " + kGolden + "llama-tiny");
  EXPECT_EQ(o.code, 0);
  for (const char* item :
       {"logits", "grad.lm_head.weight", "losses", "grad_norms", "final.lm_head.weight", "within tolerance"})
    EXPECT_THAT(o.out, ::testing::HasSubstr(item));
}

TEST(VerifyCommand, GivesJsonOfTheDocumentedForm) {
  const Outcome o = run_in_shell("verify --reference " + kGolden + "gpt2-tiny --precision fp32 --threads 2 --json");
  EXPECT_EQ(o.code, 0);
  const auto json = nlohmann::json::parse(o.out);
  EXPECT_EQ(json["ok"], true);
  EXPECT_EQ(json["precision"], "fp32");
  ASSERT_GT(json["items"].size(), 50u);
  for (const auto& item : json["items"]) {
    EXPECT_TRUE(item["name"].is_string());
    EXPECT_TRUE(item["error"].is_number());
    EXPECT_TRUE(item["tolerance"].is_number());
    EXPECT_EQ(item["ok"], true);
  }
}

TEST(VerifyCommand, SaysNoWithExitCodeOne) {
  const std::string folder = ::testing::TempDir() + "lockstep-verify-no";
  const std::string copy = "rm -rf " + folder + " && cp -r " + kGolden + "llama-tiny " + folder + " && chmod -R u+w " +
                           folder + " && sed -i 's/\"lr\": 0.001/\"lr\": 0.002/' " + folder + "/run.json";
  ASSERT_EQ(std::system(copy.c_str()), 0);
  const Outcome o = run_in_shell("verify --reference " + folder);
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.out, ::testing::HasSubstr("outside"));
  const auto json = nlohmann::json::parse(run_in_shell("verify --json --reference " + folder).out);
  EXPECT_EQ(json["ok"], false);
}

TEST(VerifyCommand, SaysWhenItsAnswerCouldNotBeWritten) {
  const Outcome o = run_in_shell("verify --reference " + kGolden + "llama-tiny 3>&1 >/dev/full 2>&3 3>&- #");
  EXPECT_EQ(o.code, 5);
  EXPECT_THAT(o.out, ::testing::HasSubstr("standard output"));
}

struct MistakenCommand {
  const char* arguments;
  int code;
  const char* says;
};

class VerifyMistake : public ::testing::TestWithParam<MistakenCommand> {};

TEST_P(VerifyMistake, GetsOneLineAndItsExitCode) {
  const Outcome o = run_in_shell(std::string(GetParam().arguments));
  EXPECT_EQ(o.code, GetParam().code) << o.out;
  EXPECT_THAT(o.out, ::testing::HasSubstr(GetParam().says));
  EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), 1) << o.out;
  EXPECT_THAT(o.out, ::testing::StartsWith("lockstep: "));
}

INSTANTIATE_TEST_SUITE_P(All, VerifyMistake,
                         ::testing::Values(MistakenCommand{"", 2, "no command"},
                                           MistakenCommand{"verfy", 2, "did you mean 'verify'"},
                                           MistakenCommand{"--bogus", 2, "--bogus"},
                                           MistakenCommand{"verify", 2, "--reference"},
                                           MistakenCommand{"verify --reference /nowhere/at/all", 4, "/nowhere/at/all"},
                                           MistakenCommand{"verify --reference . --precision fp13", 2, "fp13"},
                                           MistakenCommand{"verify --reference . --threads 0", 2, "--threads"},
                                           MistakenCommand{"verify --reference . --threads many", 2, "--threads"},
                                           MistakenCommand{"verify --reference . --nonsense", 2, "--nonsense"},
                                           MistakenCommand{"verify --reference /dev/null", 4, "/dev/null"}));

TEST(Lockstep, HelpStartsInAnInstant) {
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const Outcome o = run_in_shell("--help");
    best = std::min(best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    EXPECT_EQ(o.code, 0);
    EXPECT_THAT(o.out, ::testing::HasSubstr("verify"));
  }
  EXPECT_LT(best, 50 * kSlowdown);
}

const std::string kVerifyTiny = "verify --set train.global_batch=6 --set data.seq=16 --set model.layers=1 --steps 2 ";

TEST(VerifyLayouts, AreEqualAndExactWhereTheOrderOfSumsIs) {
  const Outcome close = run_in_shell(kVerifyTiny + "--layout dp=3 --precision fp64");
  EXPECT_EQ(close.code, 0) << close.out << close.err;
  EXPECT_THAT(close.out, ::testing::HasSubstr("equal within 1e-11 in fp64: 2 layouts over 2 steps"));
  const Outcome cut =
      run_in_shell(kVerifyTiny + "--layout dp=1 --layout tp=2 --layout dp=3,tp=4,zero=3 --precision fp64");
  EXPECT_EQ(cut.code, 0) << cut.out << cut.err;
  const Outcome exact = run_in_shell(kVerifyTiny +
                                     "--layout dp=3,micro=2 --layout dp=3,micro=2,overlap=off,bucket=0 "
                                     "--layout dp=3,micro=2,dp_kind=central "
                                     "--layout dp=3,micro=2,dp_kind=server,servers=2 --exact");
  EXPECT_EQ(exact.code, 0) << exact.out << exact.err;
  EXPECT_THAT(exact.out, ::testing::HasSubstr("equal to the bit in fp32: 4 layouts"));
}

// Without warm-up Adam makes whole steps of rounding at once, and gradients of layouts differ by more than 1e-5: no
// error.
TEST(VerifyLayouts, InFp32AreHeldToRounding) {
  const std::string command =
      kVerifyTiny + "--set optim.warmup=0 --set optim.lr=3e-3 --layout dp=1 --layout cp=2 --layout pp=2,micro=3";
  const Outcome o = run_in_shell(command);
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_THAT(o.out, ::testing::HasSubstr("equal but for rounding in fp32: 3 layouts over 2 steps"));
  EXPECT_THAT(o.out, ::testing::HasSubstr("--precision fp64 shows 1e-11"));
  const auto json = nlohmann::json::parse(run_in_shell(command + " --json --precision bf16").out);
  EXPECT_EQ(json["ok"], true);
  for (const auto& one : json["layouts"]) {
    EXPECT_LE(one["of_allowed"], 1);
    EXPECT_GT(one["sees"], 1e-4) << "bf16 is blunt";
    EXPECT_TRUE(one["undecided"].is_null());
  }
}

// Another order of sums is another result: the first tensor that shows it is named.
TEST(VerifyLayouts, TheFirstThatDiffersIsNamed) {
  const Outcome o = run_in_shell(kVerifyTiny + "--layout dp=3 --layout dp=3,reduce=ring --exact --json");
  EXPECT_EQ(o.code, 1) << o.err;
  const auto json = nlohmann::json::parse(o.out);
  EXPECT_EQ(json["ok"], false);
  const auto& first = json["layouts"][0]["first"];
  EXPECT_EQ(first["step"], 1);
  EXPECT_THAT(first["what"].get<std::string>(), ::testing::HasSubstr("the gradient of "));
  EXPECT_GT(first["elements"], 0);
  EXPECT_EQ(run_in_shell(kVerifyTiny + "--layout dp=3 --layout dp=3,reduce=ring").code, 0);
}

TEST(VerifyLayouts, MistakesAreOneLineWithARemedy) {
  const std::pair<std::string, std::string> mistakes[] = {
      {"verify", "give --reference DIR, --stories FILE, --tokenizer DIR, or --layout"},
      {kVerifyTiny + "--layout dp=4", "--layout dp=4: global_batch (6) is not a multiple of dp (4)"},
      {kVerifyTiny + "--layout dp=7,uneven=on", "dp = 6 or less"},
      {kVerifyTiny + "--layout dp", "names no key and value"},
      {kVerifyTiny + "--layout dp=0", "--layout dp=0: 'dp'"},
      {kVerifyTiny + "--layout cp=5", "which cp (5) asks for; use seq = "},
      {kVerifyTiny + "--layout cp=2,cp_kind=rings", "cp_kind = 'rings' says nothing; use \"ring\", \"ulysses\""},
      {kVerifyTiny + "--layout tp=3",
       "--layout tp=3: 4 heads with 4 key/value heads cannot be shared out to tp (3) ranks"},
      {kVerifyTiny + "--layout dp=3,dp=2", "--layout 'dp=3,dp=2': it names 'dp' twice; keep one of the two"},
      {"verify --layout tp=16 --reference " + kGolden + "llama-tiny",
       "cannot be shared out to tp (16) ranks; use tp = "},
      {kVerifyTiny + "--layout dp=2,dp_kind=central,overlap=on", "'overlap' does nothing with dp_kind"},
      {"verify --exact --layout dp=2 --reference " + kGolden + "llama-tiny", "--exact beside --reference"},
      {"verify --layout dp=3 --reference " + kGolden + "llama-tiny", "use global_batch = 6 or 9"},
  };
  for (const auto& [command, words] : mistakes) {
    const Outcome o = run_in_shell(command + " 2>&1");
    EXPECT_EQ(o.code, 2) << command;
    EXPECT_THAT(o.out, ::testing::HasSubstr(words)) << command;
    EXPECT_EQ(std::ranges::count(o.out, '\n'), 1) << o.out;
  }
}

TEST(VerifyCommand, ReproducesTheReferenceUnderALayout) {
  const Outcome o =
      run_in_shell("verify --reference " + kGolden + "gpt2-tiny --layout dp=5,uneven=on --precision fp32");
  EXPECT_EQ(o.code, 0) << o.out << o.err;
}

}  // namespace
}  // namespace lockstep::tests
