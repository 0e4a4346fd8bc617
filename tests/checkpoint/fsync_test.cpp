// A checkpoint is on the disk before it has its name: seen at the system call, not at the hook that tests hear of it
// by.
//
// This program defines fsync itself, so that every call of it comes here first, whoever makes it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

#include "checkpoint/rank_saves.h"

namespace {
std::mutex mutex;                  // of what follows: ranks sync at once
std::vector<std::string>* synced;  // paths, in order; null: nobody listens
std::string failing;               // a path with this in it fails
}  // namespace

extern "C" int fsync(int descriptor) {
  {
    const std::lock_guard lock(mutex);
    if (synced) {
      std::error_code ignored;
      const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor), ignored).string();
      synced->push_back(path);
      if (!failing.empty() && path.find(failing) != std::string::npos) {
        errno = EIO;
        return -1;
      }
    }
  }
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

namespace lockstep {
namespace {

using namespace checkpoint_tests;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// What is synced while it lives, relative to a folder.
class Synced {
 public:
  explicit Synced(fs::path folder, const std::string& fails = "") : folder_(std::move(folder)) {
    const std::lock_guard lock(mutex);
    synced = &paths_;
    failing = fails;
  }
  ~Synced() {
    const std::lock_guard lock(mutex);
    synced = nullptr;
    failing.clear();
  }
  std::vector<std::string> paths() const {
    std::vector<std::string> all;
    for (const std::string& path : paths_) all.push_back(fs::path(path).lexically_relative(folder_).string());
    return all;
  }

 private:
  fs::path folder_;
  std::vector<std::string> paths_;
};

TEST(Fsync, IsCalledForEveryFileAndFolderBeforeTheNextStepOfASave) {
  const TempFolder folder;
  const Synced calls(folder.path());
  // Names as they are when the call is made: state files and manifest still in the partial folder.
  save(folder.path(), 2);
  const std::string partial = ".partial-step-00000002";
  EXPECT_THAT(calls.paths(), ElementsAre(partial + "/state-00000-of-00001.safetensors", partial + "/manifest.json",
                                         partial, ".", "latest.partial", "."));
}

TEST(Fsync, IsCalledByEveryRankForItsFiles) {
  const TempFolder folder;
  const Synced calls(folder.path());
  save_by(3, {.path = folder.path()}, 2);
  const auto paths = calls.paths();
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_THAT(paths,
                testing::Contains(fmt::format(".partial-step-00000002/state-0000{}-of-00003.safetensors", rank)));
}

TEST(Fsync, ThatFailsFailsTheSaveAndLeavesWhatWasThere) {
  const TempFolder folder;
  save(folder.path(), 1);
  const auto before = everything_in(folder.path());
  for (const std::string file : {"state-00000", "manifest.json", ".partial-step-00000002"}) {
    const Synced calls(folder.path(), file);
    EXPECT_THAT(failure([&] { save(folder.path(), 2); }), AllOf(HasSubstr("fsync failed"), HasSubstr(file))) << file;
    EXPECT_TRUE(everything_in(folder.path()) == before) << file;
  }
  // Of `latest`: the checkpoint itself is whole by then.
  const Synced calls(folder.path(), "latest.partial");
  EXPECT_THAT(failure([&] { save(folder.path(), 2); }), HasSubstr("latest.partial: fsync failed"));
  EXPECT_TRUE(holds(open_checkpoint(folder.path() / step_folder_name(1)), 1));
  EXPECT_TRUE(holds(open_checkpoint(folder.path() / step_folder_name(2)), 2));
}

}  // namespace
}  // namespace lockstep
