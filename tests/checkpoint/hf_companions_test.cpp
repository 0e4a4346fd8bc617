// What came with a Hugging Face model is in every checkpoint, byte for byte, and damage to it is damage.
#include "checkpoint/hf_companions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_model.h"
#include "checkpoint/fake_state.h"
#include "support/golden.h"

namespace lockstep {
namespace {

using namespace checkpoint_tests;
using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<HfCompanion> kCompanions = {
    {"config.json", "{\"eos_token_id\": 2}"}, {"tokenizer.model", std::string("\0\xff\n\x80", 4)}, {"merges.txt", ""}};

fs::path save_with_companions(const fs::path& folder, std::int64_t step, const std::vector<HfCompanion>& companions,
                              const Disk& disk = Disk(), const std::string& run_file = "[train]\nsteps = 7\n") {
  FakeState state;
  state.set(step);
  Progress progress = progress_at(step);
  progress.run_file = run_file;
  return save_checkpoint({.path = folder, .companions = &companions}, progress, state.tensors(), disk);
}

TEST(HfCompanions, AreInEveryCheckpointByteForByteAndPartOfWhatIsWhole) {
  const TempFolder folder;
  std::vector<std::string> synced;
  const Disk disk([&](std::string_view operation, const fs::path& path) {
    if (operation == "fsync") synced.push_back(path.filename().string());
  });
  const fs::path saved = save_with_companions(folder.path(), 1, kCompanions, disk);
  EXPECT_THAT(names_in(saved), ElementsAre("hf-config.json", "hf-merges.txt", "hf-tokenizer.model", "manifest.json",
                                           "state-00000-of-00001.safetensors"));
  const auto at = [&](const std::string& name) { return std::ranges::find(synced, name) - synced.begin(); };
  for (const HfCompanion& one : kCompanions) EXPECT_LT(at("hf-" + one.name), at("manifest.json")) << one.name;
  EXPECT_EQ(companions_of(open_checkpoint(saved)), kCompanions);
  EXPECT_EQ(open_checkpoint(saved).manifest().files.size(), 1u);

  for (const HfCompanion& one : kCompanions) {
    const fs::path file = saved / ("hf-" + one.name);
    write_bytes(file, one.bytes + "x");
    EXPECT_THAT(refusal([&] { open_checkpoint(saved); }), HasSubstr(file.string()));
    EXPECT_THAT(refusal([&] { companions_of(open_verified_checkpoint(saved)); }), HasSubstr(file.string()));
    fs::remove(file);
    EXPECT_THAT(refusal([&] { open_checkpoint(saved); }), HasSubstr(file.string()));
    EXPECT_THAT(refusal([&] { companions_of(open_verified_checkpoint(saved)); }), HasSubstr(file.string()));
    write_bytes(file, one.bytes);
  }
  EXPECT_EQ(refusal([&] { open_checkpoint(saved); }), "");
}

TEST(HfCompanions, AreTheKnownFilesOfAFolderAndNoOthers) {
  const TempFolder folder;
  for (const std::string_view name : kCompanionNames) write_bytes(folder.path() / name, std::string(name));
  for (const char* other : {"README.md", "model.safetensors", "pytorch_model.bin", "hf-config.json"})
    write_bytes(folder.path() / other, "other");
  const std::vector<HfCompanion> found = read_companions(folder.path());
  ASSERT_EQ(found.size(), kCompanionNames.size());
  for (const HfCompanion& one : found) {
    EXPECT_EQ(one.bytes, one.name);
    EXPECT_TRUE(is_kept_name("hf-" + one.name));
  }
  EXPECT_EQ(kept_config(found), "config.json");
  EXPECT_EQ(kept_config({}), "");
  fs::resize_file(folder.path() / "vocab.txt", kMaxCompanionBytes + 1);  // it takes no room on the disk
  EXPECT_THAT(refusal([&] { read_companions(folder.path()); }, ExitCode::bad_input_file), HasSubstr("vocab.txt"));
  EXPECT_EQ(read_companions(folder.path() / "gone").size(), 0u);
}

// Programs before this one kept nothing, but said where the model came from.
TEST(HfCompanions, OfAnOlderCheckpointAreThoseOfItsFolderWhileThatIsThere) {
  const TempFolder folder;
  const fs::path golden = tests::kGolden + "llama-tiny", hf = folder.path() / "hf";
  fs::create_directory(hf);
  fs::copy(golden / "config.json", hf);
  write_bytes(hf / "tokenizer.json", "{}");
  const std::string run_file = "[model]\nhf = \"" + hf.string() + "\"\n[data]\nseq = 8\n[data.synthetic]\nseed = 1\n";
  const fs::path saved = save_with_companions(folder.path() / "old", 1, {}, Disk(), run_file);
  EXPECT_THAT(bytes_of(saved / "manifest.json"), HasSubstr("\"version\":1,"));
  const std::vector<HfCompanion> found = companions_of(open_checkpoint(saved));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[1], (HfCompanion{"tokenizer.json", "{}"}));
  const fs::path other = save_with_companions(folder.path() / "other", 1, {});
  EXPECT_EQ(companions_of(open_checkpoint(other)).size(), 0u);
}

}  // namespace
}  // namespace lockstep
