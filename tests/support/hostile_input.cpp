#include "support/hostile_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <map>
#include <thread>

#include "support/error_line.h"
#include "support/sanitizer.h"

namespace lockstep::tests {

namespace {

namespace fs = std::filesystem;

std::map<std::string, off_t> files_of(const fs::path& folder) {
  std::map<std::string, off_t> all;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    struct stat status {};
    lstat(entry.path().c_str(), &status);
    all[entry.path().string()] = S_ISREG(status.st_mode) ? status.st_size : 0;
  }
  return all;
}

}  // namespace

HostileFolder::HostileFolder(const HostileInput& input) : input_(input) {
  const std::string content = input.content();
  if (content == kAFolder)
    fs::create_directories(folder_ / input.file);
  else if (content == kAPipe)
    mkfifo((folder_ / input.file).c_str(), 0600);
  else if (content == kAHole)
    write(input.file, ""), fs::resize_file(folder_ / input.file, std::uintmax_t{100} << 30);
  else if (content != kNoFile)
    write(input.file, content);
}

void HostileFolder::write(const std::string& name, const std::string& content) const {
  std::ofstream(folder_ / name, std::ios::binary) << content;
}

void HostileFolder::expect_refused(const std::vector<std::string>& arguments) const {
  const auto before = files_of(folder_.path());
  Program program(arguments, folder_.path());
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(kMostHostileSeconds * kSlowdown);
  while (!program.has_ended() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const bool late = !program.has_ended();
  if (late) program.signal(SIGKILL);
  const Outcome o = program.wait();
  EXPECT_FALSE(late) << "it takes more than " << kMostHostileSeconds << " s";
  EXPECT_EQ(o.code, input_.code) << o.err.substr(0, 2000);
  EXPECT_EQ(flaw_of_line(o.err), "") << o.err.substr(0, 2000);
  EXPECT_LT(o.err.size(), 1000u) << "a line to read";
  EXPECT_THAT(o.err, testing::HasSubstr(input_.named.empty() ? input_.file : input_.named));
  EXPECT_THAT(o.err, testing::HasSubstr(input_.says));
  if (!kUnderSanitizer) {
    EXPECT_LT(o.resident_bytes, kMostHostileBytes) << o.err.substr(0, 200);
  }
  EXPECT_EQ(files_of(folder_.path()), before) << "it left something behind";
}

}  // namespace lockstep::tests
