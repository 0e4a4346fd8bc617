// Damage is noticed, reported with its reason, and the newest whole checkpoint is used instead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/fake_state.h"

namespace lockstep {
namespace {

using namespace checkpoint_tests;
using nlohmann::json;
using testing::HasSubstr;

class CheckpointDamaged : public testing::Test {
 protected:
  void SetUp() override {
    save(folder_.path(), 1, 3);
    save(folder_.path(), 2, 3);
    newest_ = save(folder_.path(), 3, 3);
  }

  // What is said of the damage, after which step 2 must be what is found.
  std::string damage() {
    std::string said;
    const auto found = open_newest_whole(folder_.path(), [&](const fs::path& path, const std::string& reason) {
      said += path.filename().string() + " | " + reason + "\n";
    });
    EXPECT_TRUE(found && holds(*found, 2)) << said;
    return said;
  }

  // The manifest after an edit, sealed again.
  template <class Edit>
  void edit(Edit&& change) {
    json document = json::parse(bytes_of(newest_ / "manifest.json"));
    document.erase("xxh3");
    change(document);
    write_bytes(newest_ / "manifest.json", seal_manifest(document.dump()));
  }

  TempFolder folder_;
  fs::path newest_;
};

TEST_F(CheckpointDamaged, AFlippedBitAnywhereIsNoticed) {
  for (const char* name : {kStateFile, "manifest.json"}) {
    const std::string good = bytes_of(newest_ / name);
    for (std::size_t at = 0; at < good.size(); at += at < 2000 ? 1 : 37) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
      write_bytes(newest_ / name, bad);
      ASSERT_THAT(refusal([&] { open_checkpoint(newest_); }), HasSubstr(name)) << "byte " << at;
    }
    write_bytes(newest_ / name, good);
  }
  EXPECT_TRUE(holds(open_checkpoint(newest_), 3));
}

TEST_F(CheckpointDamaged, ATruncatedFileIsReportedAndPassedOver) {
  fs::resize_file(newest_ / kStateFile, fs::file_size(newest_ / kStateFile) - 1);
  EXPECT_THAT(damage(), HasSubstr("bytes, the manifest says"));
  fs::resize_file(newest_ / kStateFile, 0);
  EXPECT_THAT(damage(), HasSubstr("has 0 bytes, the manifest says"));
}

TEST_F(CheckpointDamaged, AMissingFileIsReportedAndPassedOver) {
  fs::remove(newest_ / kStateFile);
  EXPECT_THAT(damage(), HasSubstr("step-00000003 | " + (newest_ / kStateFile).string() + ": there is no such file"));
  fs::remove(newest_ / "manifest.json");
  EXPECT_THAT(damage(), HasSubstr("manifest.json: there is no such file"));
  fs::remove_all(newest_);
  EXPECT_THAT(damage(), HasSubstr("step-00000003 | "));  // `latest` still names it
}

TEST_F(CheckpointDamaged, EveryDamagedOneIsReportedAndTheOldestWholeOneFound) {
  fs::remove(newest_ / kStateFile);
  fs::remove(folder_.path() / step_folder_name(2) / "manifest.json");
  std::vector<std::string> said;
  const auto found = open_newest_whole(
      folder_.path(), [&](const fs::path& path, const std::string&) { said.push_back(path.filename().string()); });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->path(), folder_.path() / step_folder_name(1));
  EXPECT_THAT(said, testing::ElementsAre("step-00000003", "step-00000002"));
  fs::remove_all(folder_.path() / step_folder_name(1));
  EXPECT_FALSE(open_newest_whole(folder_.path()));
}

TEST_F(CheckpointDamaged, ALatestThatLeadsElsewhereIsReportedAndTheNewestStepFound) {
  for (const char* text : {"../step-00000001", "/etc", "", "step-3", "manifest.json\n"}) {
    write_bytes(folder_.path() / "latest", text);
    std::string said;
    const auto found = open_newest_whole(folder_.path(), [&](const fs::path& path, const std::string& reason) {
      said += path.filename().string() + " | " + reason;
    });
    EXPECT_TRUE(found && holds(*found, 3)) << text;
    EXPECT_THAT(said, HasSubstr("not the name of a checkpoint")) << text;
  }
  fs::remove(folder_.path() / "latest");
  EXPECT_TRUE(holds(*open_newest_whole(folder_.path()), 3));
}

TEST_F(CheckpointDamaged, LatestCountsBeforeAHigherStep) {
  write_bytes(folder_.path() / "latest", "step-00000001\n");
  EXPECT_TRUE(holds(*open_newest_whole(folder_.path()), 1));
}

// The seal holds in these, so it is the manifest's own words that are held against the files.
TEST_F(CheckpointDamaged, AManifestThatDisagreesWithTheFilesIsRefused) {
  const std::string good = bytes_of(newest_ / "manifest.json");
  const auto said = [&](auto&& change) {
    write_bytes(newest_ / "manifest.json", good);
    edit(change);
    return refusal([&] { open_checkpoint(newest_); });
  };
  EXPECT_THAT(said([](json& d) { d["files"][0]["name"] = "../step-00000002/" + std::string(kStateFile); }),
              HasSubstr("not the plain name of a file"));
  EXPECT_THAT(said([](json& d) { d["tensors"][0]["slices"][0]["entry"] = "other"; }),
              HasSubstr("has no tensor 'other', which the manifest names"));
  EXPECT_THAT(said([](json& d) { d["tensors"][0]["dtype"] = "F64"; }), HasSubstr("the manifest says F64"));
  EXPECT_THAT(said([](json& d) {
                d["tensors"][0]["shape"] = {7};
                d["tensors"][0]["slices"][0]["end"] = 7;
              }),
              HasSubstr("of 7 elements"));
  EXPECT_THAT(said([](json& d) { d["files"][0]["bytes"] = 8; }), HasSubstr("bytes, the manifest says 8"));
  EXPECT_THAT(said([](json& d) { d["files"][0]["xxh3"] = "0000000000000000"; }),
              HasSubstr("the manifest says 0000000000000000"));
  EXPECT_EQ(said([](json&) {}), "");
}

TEST_F(CheckpointDamaged, AFolderOrALinkToNowhereInPlaceOfAFileIsRefused) {
  fs::remove(newest_ / kStateFile);
  fs::create_directory(newest_ / kStateFile);
  EXPECT_THAT(damage(), HasSubstr("is a folder"));
  fs::remove(newest_ / kStateFile);
  fs::create_symlink("/nowhere", newest_ / kStateFile);
  EXPECT_THAT(damage(), HasSubstr("there is no such file"));
}

// What a disk that lies would do: the save itself finds out, and no older checkpoint goes.
TEST_F(CheckpointDamaged, AWriteThatDoesNotReadBackIsNoticedBeforeAnythingIsPruned) {
  bool done = false;
  const Disk disk([&](std::string_view operation, const fs::path& path) {
    if (operation == "fadvise" && path.filename() == kStateFile && !std::exchange(done, true)) {
      std::string bytes = bytes_of(path);
      bytes.back() = static_cast<char>(bytes.back() ^ 1);
      write_bytes(path, bytes);
    }
  });
  EXPECT_THAT(failure([&] { save(folder_.path(), 4, 1, disk); }), HasSubstr("does not read back"));
  EXPECT_THAT(names_in(folder_.path()),
              testing::ElementsAre("latest", "step-00000001", "step-00000002", "step-00000003"));
  EXPECT_TRUE(holds(*open_newest_whole(folder_.path()), 3));
}

}  // namespace
}  // namespace lockstep
