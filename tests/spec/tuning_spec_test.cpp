// What was chosen by timing is kept word for word, in run files and in the tables built into the program.
#include "spec/run/tuning_spec.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "run_toml_cases.h"
#include "spec/model/presets.h"
#include "spec/run/run_toml.h"

namespace lockstep {
namespace {

TuningSpec two_products() {
  return {.gpu = "A GPU \"quoted\"", .library = "library 7", .products = {{"1x2x3 nt", "00ff"}, {"4x5x6", "a -> b"}}};
}

std::string tuning_refusal(const std::string& text) {
  try {
    parse_run_toml(text, "run.toml", "/a");
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  ADD_FAILURE() << "accepted: " << text;
  return "";
}

TEST(Tuning, IsPartOfTheResolvedRunFile) {
  RunSpec run = parse_run_toml(kBase, "run.toml", "/a");
  EXPECT_EQ(run.tuning, TuningSpec{});
  EXPECT_EQ(to_toml(run).find("[tuning]"), std::string::npos) << "nothing was timed";
  run.tuning = two_products();
  const std::string resolved = to_toml(run);
  EXPECT_EQ(parse_run_toml(resolved, "run.toml", "/b"), run);
  EXPECT_EQ(parse_tuning_toml(resolved, "checkpoint"), run.tuning) << "whatever else is in the text";
  EXPECT_EQ(parse_tuning_toml(kBase, "checkpoint"), TuningSpec{});
}

TEST(Tuning, HasAFileOfItsOwnWithOneProductALine) {
  const std::string text = to_toml(two_products());
  EXPECT_EQ(parse_tuning_toml(text, "x"), two_products());
  EXPECT_NE(text.find(",\n"), std::string::npos) << text;
}

TEST(Tuning, WhatMakesNoSenseIsRefused) {
  EXPECT_NE(tuning_refusal(kBase + "[tuning]\nproducts = [\"a -> b\", \"ab\"]\n").find("product 2"), std::string::npos);
  EXPECT_NE(tuning_refusal(kBase + "[tuning]\nproducts = [\"a -> b\", \"a -> c\"]\n").find("product 2"),
            std::string::npos);
  EXPECT_NE(tuning_refusal(kBase + "[tuning]\ngpus = \"x\"\n").find("'gpu'"), std::string::npos);
  EXPECT_NE(tuning_refusal(kBase + "[run]\nautotune = true\n").find("autotune does nothing"), std::string::npos);
  EXPECT_TRUE(parse_run_toml(kBase + "[run]\ndevice = \"cuda\"\nautotune = true\n", "x", "/a").run.autotune);
}

TEST(Tuning, TheTablesInsideAreTheFilesOnDisk) {
  std::size_t files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "configs/tuning")) {
    SCOPED_TRACE(entry.path().string());
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const TuningSpec tuning = parse_tuning_toml(text.str(), "file");
    EXPECT_FALSE(tuning.gpu.empty());
    EXPECT_EQ(built_in_tuning(tuning.gpu, tuning.library), tuning);
    ++files;
  }
  EXPECT_EQ(embedded_tunings().size(), files);
  EXPECT_EQ(built_in_tuning("no such GPU", "no such library"), TuningSpec{});
}

}  // namespace
}  // namespace lockstep
