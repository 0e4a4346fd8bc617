// Ranks that hold the same parameters notice when they do not hold the same values; and files count by their content.
#include "train/start_agreement.h"

#include <gmock/gmock.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "checkpoint/file_content.h"
#include "comm/ranks.h"
#include "spec/layout/layout_toml.h"
#include "spec/run/run_toml.h"
#include "support/program.h"
#include "support/tiny_specs.h"
#include "train/training_run.h"

namespace lockstep::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr const char* kNorm = "model.layers.1.input_layernorm.weight";
constexpr const char* kKeys = "model.layers.1.self_attn.k_proj.weight";
constexpr const char* kDown = "model.layers.0.mlp.down_proj.weight";

// What all ranks of a layout are told after one of them has changed one element of a parameter, if it holds any.
std::vector<std::string> told_of_weights(const std::string& layout, int odd = -1, const std::string& parameter = "") {
  RunSpec spec;
  spec.model = cut_specs().back().spec;
  for (const NamedSpec& one : cut_specs())
    if (one.spec.family == Family::llama && one.spec.heads % 4 == 0) spec.model = one.spec;
  spec.data.synthetic = SyntheticSpec{.vocabulary = 16, .order = 1};
  spec.data.seq = 16;
  spec.train.global_batch = 8;
  spec.train.save_last = false;
  spec.layout = parse_layout(layout);
  spec.precision.compute = Precision::bf16;  // masters are apart from what computes
  const auto ranks = static_cast<int>(spec.layout.ranks());
  std::vector<std::string> words(static_cast<std::size_t>(ranks));
  each_rank(ranks, [&](Communicator& comm) {
    TrainingRun run(spec, Device::cpu, "", {.ranks = &comm, .threads = 1});
    run.init_weights();
    bool changed = parameter.empty();
    if (comm.rank() == odd)
      for (const Replica::Named& named : run.replica().tensors())
        if (named.tensor.name == parameter && !named.runs.empty()) {
          const Run& run_here = named.runs.back();
          static_cast<float*>(named.master.raw())[run_here.here.end() - 1] *= 1.0f + 1e-6f;
          changed = true;
        }
    EXPECT_TRUE(changed || comm.rank() != odd) << "rank " << odd << " has nothing of " << parameter;
    words[static_cast<std::size_t>(comm.rank())] =
        find_different_weights(comm, run.replica(), run.stream()).value_or("");
  });
  for (const std::string& other : words) EXPECT_EQ(other, words[0]) << layout;
  return words;
}

TEST(StartWeights, AreTheSameInEveryLayout) {
  for (const char* layout : {"dp=3,uneven=on", "dp=4,dp_kind=central", "dp=4,zero=1", "dp=4,zero=3,shard=2", "tp=4",
                             "dp=2,tp=2,sp=off", "pp=2,micro=2", "dp=2,pp=2,cp=2,tp=2,micro=2,zero=3", "cp=2"})
    EXPECT_THAT(told_of_weights(layout), Each("")) << layout;
}

// The last element of what the rank holds, by little more than its last bit.
TEST(StartWeights, OneOfTheReplicasThatDiffersIsNamed) {
  EXPECT_THAT(told_of_weights("dp=3,uneven=on", 1, kDown)[0],
              AllOf(HasSubstr("the ranks do not start from the same weights: "), HasSubstr(kDown),
                    HasSubstr("rank 1 has"), HasSubstr("ranks 0, 2 have")));
  EXPECT_THAT(told_of_weights("cp=2", 1, kDown)[0], HasSubstr(kDown));
  EXPECT_THAT(told_of_weights("dp=2,pp=2,micro=2", 3, kNorm)[0],
              AllOf(HasSubstr(kNorm), HasSubstr("rank 1 has"), HasSubstr("rank 3 has")));
}

TEST(StartWeights, AParameterThatTensorParallelismDoesNotCutIsComparedAcrossIt) {
  EXPECT_THAT(told_of_weights("tp=2", 1, kNorm)[0],
              AllOf(HasSubstr(kNorm), HasSubstr("rank 1 has"), HasSubstr("rank 0 has")));
  EXPECT_THAT(told_of_weights("tp=4", 3, kKeys)[0], HasSubstr(kKeys)) << "two key heads, each of two ranks";
  EXPECT_THAT(told_of_weights("dp=2,tp=2", 2, kDown)[0], HasSubstr(kDown));
}

// Shards of hybrid groups have a twin in each other group; those of one group have none, and cannot be compared.
TEST(StartWeights, ShardsAreComparedWithTheirTwins) {
  EXPECT_THAT(told_of_weights("dp=4,zero=3,shard=2", 3, kDown)[0], AllOf(HasSubstr(kDown), HasSubstr("rank 1 has")));
  EXPECT_THAT(told_of_weights("dp=2,zero=3", 1, kDown), Each(""));
}

// ---------------------------------------------------------------------------------------------------- files

class Files : public ::testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& text) {
    fs::create_directories(fs::path(folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  std::vector<std::string> contents(const std::vector<std::vector<fs::path>>& files) {
    std::vector<std::string> all(files.size());
    each_rank(static_cast<int>(files.size()), [&](Communicator& comm) {
      const auto here = static_cast<std::size_t>(comm.rank());
      all[here] = content_of_files(files[here], comm);
    });
    return all;
  }
  std::string run_with(const std::string& data) { return "[model]\npreset = \"llama-1m\"\n[data]\nseq = 8\n" + data; }
  TemporaryFolder folder_;
};

TEST_F(Files, ThatAreTheSameOnesAreNotRead) {
  const fs::path file = write("a", "some weights");
  const fs::path linked = fs::path(folder_ / "linked");
  fs::create_symlink(file, linked);
  EXPECT_THAT(contents({{file}, {linked}, {file}}), Each("the same files"));
}

TEST_F(Files, CountByTheirContent) {
  const auto same =
      contents({{write("a", "some weights")}, {write("b", "some weights")}, {write("a", "some weights")}});
  EXPECT_EQ(same[0], same[1]);
  EXPECT_EQ(same[0], same[2]);
  EXPECT_NE(same[0], "the same files");
  const auto other =
      contents({{write("c", "some weights")}, {write("d", "some weightz")}, {write("e", "some weights")}});
  EXPECT_EQ(other[0], same[0]);
  EXPECT_EQ(other[0], other[2]);
  EXPECT_NE(other[0], other[1]);
  const auto cut = contents({{write("f", "ab"), write("g", "c")}, {write("h", "a"), write("i", "bc")}});
  EXPECT_NE(cut[0], cut[1]) << "where one ends and the next begins counts";
}

TEST_F(Files, OneThatIsMissingIsToldOnAllRanks) {
  const fs::path file = write("a", "some weights");
  std::atomic<int> told = 0;
  each_rank(2, [&](Communicator& comm) {
    try {
      content_of_files(std::vector<fs::path>{comm.rank() == 0 ? file : fs::path(folder_ / "missing")}, comm);
    } catch (const std::exception& error) {
      EXPECT_THAT(error.what(), HasSubstr("missing cannot be read"));
      ++told;
    }
  });
  EXPECT_EQ(told, 2);
}

TEST_F(Files, OfDataCountByTheirContent) {
  const auto content = [&](const fs::path& file) {
    return content_of(RunData(parse_run_toml(run_with("text = \"" + file.string() + "\"\n"), "run", "/")));
  };
  const std::string text(1000, 'a');
  const auto here = content(write("here/text", text)), there = content(write("there/same", text));
  EXPECT_EQ(here, there);
  EXPECT_NE(here, content(write("here/other", text.substr(1) + "b")));
  EXPECT_NE(here, content(write("here/longer", text + "a")));
}

TEST_F(Files, OfACheckpointCountByTheirContent) {
  const auto content = [&](const std::string& name, std::int64_t samples) {
    RunSpec spec = parse_run_toml(run_with("example = true\n"), "run", "/");
    spec.run.threads = 1;
    TrainingRun run(spec, Device::cpu, folder_ / name);
    run.init_weights();
    run.save({.step = 3, .updates = 3, .samples = samples, .run_file = "a run"});
    run.wait_for_save();
    return content_of(open_checkpoint(fs::path(folder_ / name) / "step-00000003"));
  };
  const auto here = content("here", 18);
  EXPECT_EQ(here, content("there", 18));
  EXPECT_NE(here, content("other", 19));
  // As what weights start from: a folder of checkpoints, or one checkpoint.
  std::vector<NamedValues> from(4);
  each_rank(4, [&](Communicator& comm) {
    RunSpec spec;
    const auto rank = static_cast<std::size_t>(comm.rank());
    spec.model_from = folder_ / std::array{"here", "there/step-00000003", "other", "nowhere"}[rank];
    from[rank] = imported_content(spec, comm);
  });
  EXPECT_EQ(from[0], from[1]);
  EXPECT_NE(from[0], from[2]);
  EXPECT_NE(from[0], from[3]);
}

TEST_F(Files, OfImportedWeightsCountByTheirContent) {
  const fs::path golden = LOCKSTEP_SOURCE_DIR "/tests/golden/llama-tiny";
  for (const char* name : {"a", "b", "c"}) {
    fs::create_directories(fs::path(folder_ / name));
    for (const char* file : {"config.json", "model.safetensors"})
      fs::copy_file(golden / file, fs::path(folder_ / name) / file);
  }
  {
    std::fstream weights(folder_ / "c/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    weights.seekg(-1, std::ios::end);
    const char last = static_cast<char>(weights.get() ^ 1);
    weights.seekp(-1, std::ios::end);
    weights.put(last);
  }
  const auto contents_of = [&](std::vector<std::string> folders) {
    std::vector<NamedValues> all(folders.size());
    each_rank(static_cast<int>(folders.size()), [&](Communicator& comm) {
      RunSpec spec;
      const auto here = static_cast<std::size_t>(comm.rank());
      spec.model_hf = folder_ / folders[here];
      all[here] = imported_content(spec, comm);
    });
    return all;
  };
  const auto same = contents_of({"a", "b", "a"}), other = contents_of({"a", "c", "b"});
  EXPECT_EQ(same[0], same[1]);
  EXPECT_EQ(same[0], same[2]);
  EXPECT_EQ(other[0], other[2]);
  EXPECT_NE(other[0], other[1]);
  each_rank(2, [](Communicator& comm) { EXPECT_EQ(imported_content(RunSpec{}, comm), NamedValues{}); });
}

}  // namespace
}  // namespace lockstep::tests
