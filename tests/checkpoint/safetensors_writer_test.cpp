// Writing safetensors files: what is written is read back, and a failure leaves nothing behind.
#include "checkpoint/safetensors_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "checkpoint/fake_state.h"
#include "checkpoint/safetensors.h"
#include "support/golden.h"

namespace lockstep {
namespace {

using namespace checkpoint_tests;
using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

class SafetensorsWriter : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "lockstep-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    path_ = folder_ / "out.safetensors";
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::vector<fs::path> files() const {
    std::vector<fs::path> names;
    for (const auto& item : fs::directory_iterator(folder_)) names.push_back(item.path().filename());
    return names;
  }

  fs::path folder_, path_;
};

template <class T>
ConstTensor of(const std::vector<T>& values, const Shape& shape) {
  return ConstTensor(values.data(), dtype_of<T>, Device::cpu, shape);
}

std::string failure_to_write(const fs::path& path, std::span<const NamedTensor> tensors) {
  return failure([&] { write_safetensors(path, tensors); });
}

const std::vector<float> kFloats = {1.5f, -2.0f, 0x1p-140f, 4.0f, 5.0f, 6.0f};

TEST_F(SafetensorsWriter, ReadsBackWhatItWroteInEveryDType) {
  const std::vector<double> doubles = {0.1, -1e300};
  const std::vector<bf16> brains = {bf16(1.0f), bf16(-3.0f), bf16(0.5f)};
  const std::vector<f16> halves = {f16(1.0f)};
  const std::vector<std::int32_t> ints = {7, -8};
  const std::vector<std::int64_t> longs = {std::int64_t{1} << 40};
  const std::vector<NamedTensor> tensors = {{"f16", of(halves, {1, 1, 1, 1})}, {"f32", of(kFloats, {2, 3})},
                                            {"bf16", of(brains, {3})},         {"empty", of(kFloats, {0, 5})},
                                            {"f64", of(doubles, {2})},         {"i64", of(longs, {1})},
                                            {"i32", of(ints, {2, 1})},         {"scalar \"é\"\n", of(kFloats, {})}};
  const SafetensorsMetadata metadata = {{"format", "pt"}, {"note", "a \"quote\", a line\nand ünïcode"}};
  write_safetensors(path_, tensors, metadata);

  const SafetensorsFile file(path_);
  EXPECT_EQ(file.metadata(), metadata);
  EXPECT_EQ(file.entries().size(), tensors.size());
  EXPECT_EQ(file.entries().front().begin % 64, 0);
  for (const NamedTensor& t : tensors) {
    const ConstTensor read = file.tensor(t.name);
    EXPECT_EQ(read.dtype(), t.tensor.dtype());
    EXPECT_EQ(read.shape(), t.tensor.shape());
    EXPECT_EQ(std::memcmp(read.raw(), t.tensor.raw(), static_cast<std::size_t>(t.tensor.bytes())), 0) << t.name;
    EXPECT_EQ(file.find(t.name)->begin % size_of(t.tensor.dtype()), 0) << "copied on reading: " << t.name;
  }
  EXPECT_EQ(files(), std::vector<fs::path>{"out.safetensors"});
}

TEST_F(SafetensorsWriter, AGoldenFileSurvivesARoundTrip) {
  const SafetensorsFile golden(tests::kGolden + "qwen2-tiny/expected.safetensors");
  std::vector<NamedTensor> tensors;
  for (const SafetensorsEntry& entry : golden.entries()) tensors.push_back({entry.name, golden.tensor(entry.name)});
  write_safetensors(path_, tensors, golden.metadata());
  const SafetensorsFile file(path_);
  ASSERT_EQ(file.entries().size(), golden.entries().size());
  for (const NamedTensor& t : tensors) {
    const ConstTensor read = file.tensor(t.name);
    ASSERT_EQ(read.shape(), t.tensor.shape());
    EXPECT_EQ(std::memcmp(read.raw(), t.tensor.raw(), static_cast<std::size_t>(t.tensor.bytes())), 0) << t.name;
  }
}

TEST_F(SafetensorsWriter, BytesDoNotDependOnTheOrderOfTensors) {
  std::vector<NamedTensor> tensors = {{"a", of(kFloats, {6})}, {"b", of(kFloats, {2})}, {"c", of(kFloats, {3})}};
  write_safetensors(path_, tensors);
  const std::string first = bytes_of(path_);
  std::swap(tensors[0], tensors[2]);
  write_safetensors(path_, tensors);
  EXPECT_EQ(bytes_of(path_), first);
}

TEST_F(SafetensorsWriter, NoTensorsMakeAValidFile) {
  write_safetensors(path_, {});
  EXPECT_TRUE(SafetensorsFile(path_).entries().empty());
}

TEST_F(SafetensorsWriter, AMissingFolderAndAFolderInTheWayAreNamed) {
  const NamedTensor tensors[] = {{"a", of(kFloats, {6})}};
  EXPECT_THAT(failure_to_write(folder_ / "absent/out.safetensors", tensors),
              AllOf(HasSubstr("absent/out.safetensors.partial: open failed"), HasSubstr("No such file")));
  fs::create_directory(path_);
  EXPECT_THAT(failure_to_write(path_, tensors),
              AllOf(HasSubstr("out.safetensors: rename failed"), HasSubstr("directory")));
  EXPECT_EQ(files(), std::vector<fs::path>{"out.safetensors"});
}

// In a child, since root may write anywhere and has to give that up first.
TEST_F(SafetensorsWriter, AReadOnlyFolderIsRefusedAndKeepsItsFile) {
  const NamedTensor tensors[] = {{"a", of(kFloats, {6})}};
  write_safetensors(path_, tensors);
  const std::string before = bytes_of(path_);
  fs::permissions(folder_,
                  fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read | fs::perms::others_exec);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(2);
    ::_exit(failure_to_write(path_, tensors).find("open failed: Permission denied") != std::string::npos ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  fs::permissions(folder_, fs::perms::owner_all);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(bytes_of(path_), before);
}

// A limit on the size of files fails a write in the middle, as a full disk does.
TEST_F(SafetensorsWriter, AWriteThatFailsLeavesTheOldFileAndNoPartial) {
  const std::vector<float> big(1 << 16);
  const NamedTensor small[] = {{"a", of(kFloats, {6})}}, large[] = {{"a", of(big, {1 << 16})}};
  write_safetensors(path_, small);
  const std::string before = bytes_of(path_);

  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{.rlim_cur = 10'000, .rlim_max = old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  const std::string said = failure_to_write(path_, large);
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);

  EXPECT_THAT(said, HasSubstr("out.safetensors.partial: write failed: File too large"));
  EXPECT_EQ(bytes_of(path_), before);
  EXPECT_EQ(files(), std::vector<fs::path>{"out.safetensors"});
}

TEST_F(SafetensorsWriter, AStalePartialFileIsReplaced) {
  std::ofstream(path_.string() + ".partial") << std::string(100'000, 'x');
  const NamedTensor tensors[] = {{"a", of(kFloats, {6})}};
  write_safetensors(path_, tensors);
  EXPECT_EQ(SafetensorsFile(path_).entries().size(), 1u);
  EXPECT_EQ(files(), std::vector<fs::path>{"out.safetensors"});
}

TEST_F(SafetensorsWriter, ACallersMistakeWritesNothing) {
  const ConstTensor good = of(kFloats, {2, 3});
  const auto write = [&](std::vector<NamedTensor> tensors) { write_safetensors(path_, tensors); };
  EXPECT_THROW(write({{"a", good}, {"a", good}}), ProgramError);
  EXPECT_THROW(write({{"__metadata__", good}}), ProgramError);
  EXPECT_THROW(write({{"a", ConstTensor()}}), ProgramError);
  EXPECT_THROW(write({{"a", good.slice(1, 0, 2)}}), ProgramError);
  EXPECT_THROW(write({{"a", ConstTensor(nullptr, DType::f32, Device::meta, {2})}}), ProgramError);
  EXPECT_THROW(write({{"\xC3\x28", good}}), ProgramError);
  EXPECT_TRUE(files().empty());
}

}  // namespace
}  // namespace lockstep
