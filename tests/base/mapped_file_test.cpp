// A file as bytes in memory, and what cannot be one.
#include "base/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "support/program.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

std::string text_of(const std::filesystem::path& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}
std::string refusal(const std::filesystem::path& path) {
  try {
    const MappedFile file(path);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(MappedFile, HoldsEveryByteOfAFileOfAnySize) {
  const TemporaryFolder folder;
  for (const std::size_t size : {0, 1, 2, 4095, 4096, 4097, 100'000}) {
    std::string text(size, ' ');
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 7);
    std::ofstream(folder / "file", std::ios::binary) << text;
    EXPECT_EQ(text_of(folder / "file"), text) << size;
    const MappedFile file(folder / "file");
    file.forget(0, static_cast<std::int64_t>(size));  // what was given up is read again
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()), text) << size;
  }
}

TEST(MappedFile, WhatIsNoFileIsToldApart) {
  const TemporaryFolder folder;
  EXPECT_THAT(refusal(folder.path()), HasSubstr("is a folder; name the file itself"));
  EXPECT_THAT(refusal(folder / "absent"), HasSubstr("there is no such file"));
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal(folder / "pipe"), HasSubstr("is not a regular file"));
}

}  // namespace
}  // namespace lockstep::tests
