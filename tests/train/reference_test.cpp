// The golden folders: every supported model computes what Hugging Face transformers computes, forward, backward and
// twenty steps.
#include "train/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
const fs::path kGolden = fs::path(LOCKSTEP_SOURCE_DIR) / "tests" / "golden";

class Golden : public ::testing::TestWithParam<std::tuple<const char*, Precision, int>> {};

TEST_P(Golden, FolderIsReproduced) {
  const auto [name, precision, threads] = GetParam();
  const ReferenceReport report = verify_reference(kGolden / name, {.precision = precision, .threads = threads});
  EXPECT_EQ(report.steps, 20);
  for (const ReferenceItem& item : report.items) EXPECT_LE(item.error, item.tolerance) << item.name;
  EXPECT_TRUE(report.ok());
}

INSTANTIATE_TEST_SUITE_P(
    Folders, Golden,
    ::testing::Combine(::testing::Values("llama-tiny", "llama-tied-scaled", "llama-mha-8l", "gpt2-tiny", "qwen2-tiny"),
                       ::testing::Values(Precision::fp64, Precision::fp32, Precision::bf16, Precision::fp16),
                       ::testing::Values(1, 2)),
    [](const auto& info) {
      std::string name = std::string(std::get<0>(info.param)) + "_" + std::string(name_of(std::get<1>(info.param))) +
                         "_" + std::to_string(std::get<2>(info.param));
      std::ranges::replace(name, '-', '_');
      return name;
    });

TEST(Reference, ReportsTheSameErrorsOnAnyNumberOfThreads) {
  const auto one = verify_reference(kGolden / "llama-tiny", {.precision = Precision::fp32, .threads = 1});
  const auto three = verify_reference(kGolden / "llama-tiny", {.precision = Precision::fp32, .threads = 3});
  ASSERT_EQ(one.items.size(), three.items.size());
  for (std::size_t i = 0; i < one.items.size(); ++i)
    EXPECT_EQ(one.items[i].error, three.items[i].error) << one.items[i].name;
}

// A folder of its own that a test may spoil.
class Spoiled : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("lockstep-reference-" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::copy(kGolden / "llama-tiny", folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void replace(const std::string& file, const std::string& from, const std::string& to) {
    std::ifstream in(folder_ / file, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(in), {}};
    const auto at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    in.close();
    std::ofstream(folder_ / file, std::ios::binary) << text;
  }
  void expect_refused(const std::string& what) {
    try {
      verify_reference(folder_, {});
      FAIL() << "accepted";
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input_file);
      EXPECT_THAT(error.what(), ::testing::HasSubstr(what));
    }
  }
  fs::path folder_;
};

TEST_F(Spoiled, AWrongHyperparameterIsNoticed) {
  replace("run.json", "\"beta2\": 0.95", "\"beta2\": 0.94");
  const ReferenceReport report = verify_reference(folder_, {});
  EXPECT_FALSE(report.ok());
}

TEST_F(Spoiled, AWrongNormEpsilonIsNoticed) {
  replace("config.json", "\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 1e-03");
  EXPECT_FALSE(verify_reference(folder_, {.precision = Precision::fp32}).ok());
}

TEST_F(Spoiled, AWrongRopeBaseIsNoticed) {
  replace("config.json", "\"rope_theta\": 10000.0", "\"rope_theta\": 11000.0");
  EXPECT_FALSE(verify_reference(folder_, {.precision = Precision::fp32}).ok());
}

TEST_F(Spoiled, AChangedWeightIsNoticed) {
  std::fstream file(folder_ / "model.safetensors", std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(-2000, std::ios::end);
  file.write("\x00\x00\x80\x3e", 4);  // 0.25
  file.close();
  EXPECT_FALSE(verify_reference(folder_, {.precision = Precision::fp32}).ok());
}

TEST_F(Spoiled, NumbersThatAreNotFiniteAreNeverEqual) {
  replace("run.json", "\"lr\": 0.001", "\"lr\": 1e30");
  const ReferenceReport report = verify_reference(folder_, {.precision = Precision::fp32});
  for (const ReferenceItem& item : report.items)
    if (item.name == "losses" || item.name == "grad_norms") {
      EXPECT_FALSE(item.ok()) << item.name;
    }
}

TEST_F(Spoiled, AMissingFileIsNamed) {
  fs::remove(folder_ / "run.json");
  expect_refused("run.json");
}

TEST_F(Spoiled, AShortListOfLossesIsNamed) {
  replace("run.json", "\"steps\": 20", "\"steps\": 21");
  expect_refused("losses");
}

TEST_F(Spoiled, AModelOfOtherSizesIsNamedByTensor) {
  replace("config.json", "\"intermediate_size\": 88", "\"intermediate_size\": 87");
  expect_refused("mlp.gate_proj.weight");
}

TEST_F(Spoiled, ATokenBeyondTheVocabularyIsNamed) {
  replace("config.json", "\"vocab_size\": 128", "\"vocab_size\": 100");
  expect_refused("token");
}

TEST_F(Spoiled, TokensBeyondThePositionsAreNamed) {
  replace("config.json", "\"max_position_embeddings\": 64", "\"max_position_embeddings\": 31");
  expect_refused("positions");
}

TEST_F(Spoiled, AnExtraTensorIsNamed) {
  replace("config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
  expect_refused("model.layers.1");
}

}  // namespace
}  // namespace lockstep
