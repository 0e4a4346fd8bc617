// Reading safetensors files: right values out of good ones, one line and no crash out of bad ones.
#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "checkpoint/safetensors_bytes.h"
#include "support/golden.h"

namespace lockstep {
namespace {

using namespace checkpoint_tests;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

// A folder of this process's own, gone with the test.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "lockstep-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("mkdtemp");
    path_ = name;
  }
  ~Folder() { fs::remove_all(path_); }
  fs::path write(const std::string& bytes) const {
    const fs::path file = path_ / "bad.safetensors";
    std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return file;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string refusal_to_open(const fs::path& path) {
  try {
    SafetensorsFile file(path);
    return "";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input_file);
    return error.what();
  }
}

// Two tensors, metadata, and a tensor without elements; used whole, cut and with bits flipped.
const std::string kThreeTensors = file_of(
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2],"data_offsets":[6,14]},)"
    R"("a":{"dtype":"BF16","shape":[1,3],"data_offsets":[0,6]},"none":{"dtype":"I64","shape":[0,7],"data_offsets":[6,6]}})",
    14);

TEST(Safetensors, GoldenFilesReadRight) {
  const SafetensorsFile model(tests::kGolden + "llama-tiny/model.safetensors");
  EXPECT_EQ(model.entries().size(), 21u);
  EXPECT_THAT(model.metadata(), ElementsAre(std::pair<const std::string, std::string>("format", "pt")));
  const ConstTensor norm = model.tensor("model.norm.weight");
  EXPECT_EQ(norm.shape(), Shape({32}));
  EXPECT_EQ(norm.data<float>()[0], std::bit_cast<float>(0x3f886e1cu));
  const ConstTensor down = model.tensor("model.layers.1.mlp.down_proj.weight");
  EXPECT_EQ(down.shape(), Shape({32, 88}));
  EXPECT_EQ(down.data<float>()[0], std::bit_cast<float>(0xbd90109cu));

  const SafetensorsFile expected(tests::kGolden + "gpt2-tiny/expected.safetensors");
  const ConstTensor tokens = expected.tensor("tokens");
  ASSERT_EQ(tokens.shape(), Shape({20, 8, 33}));
  EXPECT_EQ(tokens.data<std::int32_t>()[1], 52);
  EXPECT_EQ(tokens.data<std::int32_t>()[tokens.elements() - 1], 64);
  EXPECT_EQ(expected.tensor("logits").data<float>()[0], std::bit_cast<float>(0x3d630fefu));
}

TEST(Safetensors, EveryGoldenFileOpensAndEveryTensorOfItIsReadable) {
  int files = 0;
  for (const auto& item : fs::recursive_directory_iterator(tests::kGolden)) {
    if (item.path().extension() != ".safetensors") continue;
    ++files;
    const SafetensorsFile file(item.path());
    std::int64_t at = file.entries().front().begin;
    for (const SafetensorsEntry& entry : file.entries()) {
      EXPECT_EQ(entry.begin, at) << entry.name;
      EXPECT_EQ(file.tensor(entry.name).bytes(), entry.end - entry.begin) << entry.name;
      EXPECT_EQ(file.find(entry.name), &entry);
      at = entry.end;
    }
    EXPECT_EQ(at, static_cast<std::int64_t>(fs::file_size(item.path())));
  }
  EXPECT_EQ(files, 10);
}

TEST(Safetensors, EntriesComeInOrderOfOffset) {
  const SafetensorsIndex index = parse(kThreeTensors);
  ASSERT_EQ(index.entries().size(), 3u);
  const auto data = static_cast<std::int64_t>(kThreeTensors.size()) - 14;
  EXPECT_EQ(index.entries()[0], (SafetensorsEntry{"a", "BF16", {1, 3}, data, data + 6}));
  EXPECT_EQ(index.entries()[1], (SafetensorsEntry{"none", "I64", {0, 7}, data + 6, data + 6}));
  EXPECT_EQ(index.entries()[2], (SafetensorsEntry{"b", "F32", {2}, data + 6, data + 14}));
  EXPECT_EQ(index.find("c"), nullptr);
  EXPECT_EQ(index.find(""), nullptr);
}

TEST(Safetensors, WhatTheFormatAllowsIsListed) {
  EXPECT_EQ(refusal_to_parse(file_of("{}", 0)), "");
  EXPECT_EQ(refusal_to_parse(file_of("{}        ", 0)), "");
  EXPECT_EQ(refusal_to_parse(file_of(R"({"scalar":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4)), "");
  for (const char* dtype : {"BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3"}) {
    EXPECT_EQ(refusal_to_parse(
                  file_of(fmt::format(R"({{"x":{{"dtype":"{}","shape":[3],"data_offsets":[0,3]}}}})", dtype), 3)),
              "");
  }
  for (const auto& [dtype, size] : {std::pair("I16", 2),
                                    {"U16", 2},
                                    {"F16", 2},
                                    {"BF16", 2},
                                    {"I32", 4},
                                    {"U32", 4},
                                    {"F32", 4},
                                    {"F64", 8},
                                    {"I64", 8},
                                    {"U64", 8}}) {
    const auto with = [&](int bytes) {
      return file_of(fmt::format(R"({{"x":{{"dtype":"{}","shape":[3],"data_offsets":[0,{}]}}}})", dtype, bytes), bytes);
    };
    EXPECT_EQ(refusal_to_parse(with(3 * size)), "");
    EXPECT_THAT(refusal_to_parse(with(3 * size + 1)), HasSubstr("by its shape"));
  }
  EXPECT_EQ(refusal_to_parse(file_of(R"({"x":{"dtype":"F4","shape":[6],"data_offsets":[0,3]}})", 3)), "");
  EXPECT_THAT(refusal_to_parse(file_of(R"({"x":{"dtype":"F4","shape":[5],"data_offsets":[0,3]}})", 3)),
              HasSubstr("20 bits"));
}

TEST(Safetensors, ATensorThatCannotBeViewedIsListedAndRefusedByName) {
  const Folder folder;
  const SafetensorsFile file(folder.write(file_of(
      R"({"five":{"dtype":"F32","shape":[1,1,1,1,1],"data_offsets":[0,4]},"odd":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
      8)));
  EXPECT_TRUE(file.contains("five") && file.contains("odd") && !file.contains("even"));
  const auto said = [&](const char* name) -> std::string {
    try {
      file.tensor(name);
      return "";
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input_file);
      return error.what();
    }
  };
  EXPECT_THAT(said("five"), AllOf(HasSubstr("bad.safetensors: byte "), HasSubstr("'five' has 5 dims")));
  EXPECT_THAT(said("odd"), AllOf(HasSubstr("bad.safetensors: byte "), HasSubstr("'odd' is U8")));
  EXPECT_THAT(said("even"), AllOf(HasSubstr("bad.safetensors: no tensor 'even'"), HasSubstr("belongs to this model")));
}

// A header of any length is legal, so data may begin at an odd address, where reading a float would be undefined.
TEST(Safetensors, MisalignedDataReadsRightFromManyThreads) {
  const Folder folder;
  for (int blanks = 0; blanks < 8; ++blanks) {
    std::string header = R"({"x":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}})" + std::string(blanks, ' ');
    const double values[] = {1.5, -2.25};
    const std::string data(reinterpret_cast<const char*>(values), sizeof values);
    const SafetensorsFile file(folder.write(length_prefix(header.size()) + header + data));
    std::vector<const void*> seen(4);
    std::vector<std::thread> threads;
    for (const void*& raw : seen) threads.emplace_back([&] { raw = file.tensor("x").raw(); });
    for (std::thread& thread : threads) thread.join();
    for (const void* raw : seen) EXPECT_EQ(raw, seen[0]);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(seen[0]) % 8, 0u);
    EXPECT_THAT(std::span(file.tensor("x").data<double>(), 2), ElementsAre(1.5, -2.25));
  }
}

TEST(Safetensors, WhatIsNoFileIsRefusedInOneLine) {
  const Folder folder;
  EXPECT_THAT(refusal_to_open(folder.path() / "absent.safetensors"),
              AllOf(HasSubstr("absent.safetensors: there is no such file"), HasSubstr("check the path")));
  EXPECT_THAT(refusal_to_open(folder.path()), AllOf(HasSubstr(folder.path().string()), HasSubstr("is a folder")));
  EXPECT_THAT(refusal_to_open(folder.write("")), AllOf(HasSubstr("bad.safetensors: byte 0"), HasSubstr("again")));
  const fs::path pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(refusal_to_open(pipe), HasSubstr("pipe: is not a regular file"));
}

// In a child, since root may read everything and has to give that up first.
TEST(Safetensors, AFileThatMayNotBeReadIsRefused) {
  const Folder folder;
  const fs::path file = folder.write(kThreeTensors);
  fs::permissions(folder.path(), fs::perms::all);
  fs::permissions(file, fs::perms::none);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(2);
    ::_exit(refusal_to_open(file).find("bad.safetensors: this user may not read") != std::string::npos ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace lockstep
