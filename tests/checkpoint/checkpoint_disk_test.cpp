// A disk that is full, read-only or forbidden: the save says so, leaves nothing half-written and touches nothing old.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>

#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/fake_state.h"

namespace lockstep {
namespace {

using namespace checkpoint_tests;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

fs::path save_big(const fs::path& folder, std::int64_t step, std::int64_t elements) {
  FakeState state(1, {{"weight", "big", {elements}, DType::f64}});
  state.set(step);
  return save_checkpoint({.path = folder, .keep = 1}, progress_at(step), state.tensors());
}

// A file system of its own, gone with the test.
class Mounted {
 public:
  explicit Mounted(const char* options) { there_ = ::mount("tmpfs", folder_.path().c_str(), "tmpfs", 0, options) == 0; }
  ~Mounted() {
    if (there_) ::umount(folder_.path().c_str());
  }
  explicit operator bool() const { return there_; }
  const fs::path& path() const { return folder_.path(); }
  bool make_read_only() const { return ::mount("", path().c_str(), "", MS_REMOUNT | MS_RDONLY, nullptr) == 0; }

 private:
  TempFolder folder_;
  bool there_ = false;
};

TEST(CheckpointDisk, AFullDiskLeavesNothingHalfWrittenAndOldOnesWhole) {
  const Mounted disk("size=256k");
  if (!disk) GTEST_SKIP() << "this user may not mount a small tmpfs; the limit on file sizes is tested instead";
  save_big(disk.path(), 1, 1000);
  const auto before = everything_in(disk.path());
  EXPECT_THAT(failure([&] { save_big(disk.path(), 2, 64 << 10); }),
              AllOf(HasSubstr(".partial-step-00000002/state-00000-of-00001.safetensors: write failed"),
                    HasSubstr("No space left on device")));
  EXPECT_TRUE(everything_in(disk.path()) == before);
  EXPECT_THAT(names_in(disk.path()), ElementsAre("latest", "step-00000001"));
  save_big(disk.path(), 3, 2000);  // there is room again
  EXPECT_THAT(names_in(disk.path()), ElementsAre("latest", "step-00000003"));
}

TEST(CheckpointDisk, AReadOnlyDiskIsNamed) {
  const Mounted disk("size=256k");
  if (!disk) GTEST_SKIP() << "this user may not mount a small tmpfs";
  save_big(disk.path(), 1, 1000);
  const auto before = everything_in(disk.path());
  ASSERT_TRUE(disk.make_read_only());
  EXPECT_THAT(failure([&] { save_big(disk.path(), 2, 1000); }),
              AllOf(HasSubstr(".partial-step-00000002: mkdir failed"), HasSubstr("Read-only file system")));
  EXPECT_TRUE(everything_in(disk.path()) == before);
}

// A limit on the size of files fails a write in the middle, as a full disk does, and needs no rights.
TEST(CheckpointDisk, AWriteThatFailsLeavesNothingHalfWrittenAndOldOnesWhole) {
  const TempFolder folder;
  save_big(folder.path(), 1, 1000);
  const auto before = everything_in(folder.path());
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{.rlim_cur = 20'000, .rlim_max = old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  const std::string said = failure([&] { save_big(folder.path(), 2, 100'000); });
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(said, AllOf(HasSubstr("state-00000-of-00001.safetensors: write failed"), HasSubstr("File too large")));
  EXPECT_TRUE(everything_in(folder.path()) == before);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("latest", "step-00000001"));
}

// In a child, since root may write anywhere and has to give that up first.
TEST(CheckpointDisk, AFolderWithoutPermissionIsNamed) {
  const TempFolder folder;
  save_big(folder.path(), 1, 1000);
  fs::permissions(folder.path(), static_cast<fs::perms>(0555));
  const auto before = everything_in(folder.path());
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(2);
    bool good = false;
    try {
      const std::string said = failure([&] { save_big(folder.path(), 2, 1000); });
      const auto found = open_newest_whole(folder.path());
      good = said.find(".partial-step-00000002: mkdir failed: Permission denied") != std::string::npos && found &&
             found->progress().step == 1;
    } catch (...) {  // nothing may leave the child
    }
    ::_exit(good ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  fs::permissions(folder.path(), fs::perms::owner_all);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(everything_in(folder.path()) == before);
}

TEST(CheckpointDisk, LeftoversOfKilledSavesGoAndEverythingElseStays) {
  const TempFolder folder;
  for (const char* name : {".partial-step-00000009", ".trash-step-00000002"}) {
    fs::create_directories(folder.path() / name / "inside");
    write_bytes(folder.path() / name / "inside" / "file", "x");
  }
  fs::create_symlink("/etc", folder.path() / ".trash-step-00000003");  // a link goes, what it leads to stays
  write_bytes(folder.path() / "latest.partial", "x");
  write_bytes(folder.path() / "notes.txt", "mine");
  write_bytes(folder.path() / ".hidden", "mine");
  save(folder.path(), 1);
  EXPECT_THAT(names_in(folder.path()), ElementsAre(".hidden", "latest", "notes.txt", "step-00000001"));
  EXPECT_TRUE(fs::exists("/etc/passwd"));
}

// Every file is synced before it gets its name, and a folder after what happened in it.
TEST(CheckpointDisk, TheOrderOfOperationsIsWhatSurvivesAPowerCut) {
  const TempFolder folder;
  save(folder.path(), 1, 1);
  std::vector<std::string> steps;
  save(folder.path(), 2, 1, Disk([&](std::string_view operation, const fs::path& path) {
         const std::string step = std::string(operation) + " " + path.lexically_relative(folder.path()).string();
         if (steps.empty() || steps.back() != step) steps.push_back(step);
       }));
  const std::string partial = ".partial-step-00000002", state = "/state-00000-of-00001.safetensors";
  EXPECT_THAT(steps, ElementsAre("mkdir " + partial, "open " + partial + state, "write " + partial + state,
                                 "fsync " + partial + state, "open " + partial + "/manifest.json",
                                 "write " + partial + "/manifest.json", "fsync " + partial + "/manifest.json",
                                 "fsync " + partial, "rename step-00000002", "fsync .", "open latest.partial",
                                 "write latest.partial", "fsync latest.partial", "rename latest", "fsync .",
                                 "fadvise step-00000002/manifest.json", "fadvise step-00000002" + state,
                                 "rename .trash-step-00000001", "fsync .", "unlink .trash-step-00000001/manifest.json",
                                 "unlink .trash-step-00000001" + state, "rmdir .trash-step-00000001"));
}

TEST(CheckpointDisk, OnlyPlainNamesArePlain) {
  for (const char* good : {"a", "state-00000-of-00001.safetensors", "é", "a..b", "a b"})
    EXPECT_TRUE(is_plain_name(good)) << good;
  for (const std::string& bad :
       {std::string(), std::string("."), std::string(".."), std::string(".a"), std::string("a/b"), std::string("/a"),
        std::string("a\\b"), std::string("a\0b", 3), std::string("a\n"), std::string("a\x7f"), std::string(256, 'a')})
    EXPECT_FALSE(is_plain_name(bad)) << bad;
}

}  // namespace
}  // namespace lockstep
