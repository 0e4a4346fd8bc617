// The folder of an agent in memory: its user's alone, gone with the agent, and what killed agents left is removed.
#include "launch/copies_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "base/error.h"
#include "support/program.h"

namespace lockstep::tests {
namespace {

namespace fs = std::filesystem;

// In memory, whatever the tests' own temporary folder is on.
class InMemory : public ::testing::Test {
 protected:
  InMemory() {
    std::string name = "/dev/shm/lockstep-test-XXXXXX";
    if (!::mkdtemp(name.data())) throw std::runtime_error("mkdtemp");
    place_ = name;
  }
  ~InMemory() override { fs::remove_all(place_); }
  std::ptrdiff_t entries() const { return std::distance(fs::directory_iterator(place_), fs::directory_iterator()); }
  // An agent that is killed while it has the folder, in which its ranks have left something.
  fs::path killed_agent() const {
    const pid_t child = ::fork();
    if (child == 0) {
      const CopiesFolder folder(place_, "runs/a");
      fs::create_directories(folder.path() / "step-00000001");
      std::ofstream(folder.path() / "step-00000001" / "manifest.json") << "{}";
      ::raise(SIGKILL);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return entries() == 1 ? fs::directory_iterator(place_)->path() : fs::path();
  }
  fs::path place_;
};

TEST_F(InMemory, IsReadByItsUserAloneAndGoesWithTheAgent) {
  fs::path path;
  {
    const CopiesFolder folder(place_, "runs/a");
    path = folder.path();
    struct stat status {};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0700U);
    fs::create_directories(path / "step-00000001");
    std::ofstream(path / "step-00000001" / "x") << "x";
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(InMemory, WhatAKilledAgentLeftIsRemovedByTheNextOfAnyRun) {
  const fs::path left = killed_agent();
  ASSERT_TRUE(fs::exists(left / "step-00000001" / "manifest.json"));
  const CopiesFolder folder(place_, "runs/b");
  EXPECT_FALSE(fs::exists(left));
  EXPECT_EQ(entries(), 1);
}

TEST_F(InMemory, WhatAnAgentHasAndWhatIsNobodysOfThisKindStays) {
  const CopiesFolder first(place_, "runs/a");
  for (const char* name : {"lockstep-fedcba9876543210", "lockstep-x-1", "other-0123456789abcdef-1"})
    fs::create_directory(place_ / name);
  const fs::path elsewhere = place_ / "elsewhere";
  fs::create_directory(elsewhere);
  fs::create_directory_symlink(elsewhere, place_ / "lockstep-0123456789abcdef-7");
  fs::create_directory(place_ / "lockstep-0123456789abcdef-8");  // without a lock yet
  const pid_t child = ::fork();
  if (child == 0) {
    { const CopiesFolder second(place_, "runs/b"); }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(fs::exists(first.path()));
  EXPECT_EQ(entries(), 7);
}

TEST_F(InMemory, APlaceOnADiskOrNoneIsRefusedInOneLine) {
  for (const char* place : {"/proc", "/nowhere"}) {
    try {
      const CopiesFolder folder(place, "runs/a");
      FAIL() << place;
    } catch (const EnvironmentError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(place));
    }
  }
}

}  // namespace
}  // namespace lockstep::tests
