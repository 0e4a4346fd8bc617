// Hugging Face folders: what is imported and exported again has the same bytes, in one file or in shards.
#include "checkpoint/hf_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/fake_state.h"
#include "checkpoint/hf_tensors.h"
#include "checkpoint/safetensors_writer.h"
#include "spec/model/hf_config.h"
#include "support/golden.h"

namespace lockstep {
namespace {

using namespace checkpoint_tests;
using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// The tensors a golden folder's model wants are the ones its file has.
std::vector<LogicalTensor> wanted_in(const fs::path& folder) {
  std::vector<LogicalTensor> wanted;
  const SafetensorsFile file(folder / "model.safetensors");
  for (const SafetensorsEntry& entry : file.entries()) wanted.push_back({entry.name, entry.shape});
  return wanted;
}

std::vector<HfTensor> tensors_of(const HfFolder& folder, const std::vector<LogicalTensor>& wanted) {
  const std::vector<ConstTensor> found = folder.find(wanted);
  std::vector<HfTensor> tensors;
  for (std::size_t i = 0; i < wanted.size(); ++i) tensors.push_back({wanted[i], found[i]});
  return tensors;
}

void expect_same(const std::vector<ConstTensor>& a, const std::vector<ConstTensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].dtype(), b[i].dtype());
    ASSERT_EQ(a[i].shape(), b[i].shape());
    ASSERT_EQ(std::memcmp(a[i].raw(), b[i].raw(), static_cast<std::size_t>(a[i].bytes())), 0) << i;
  }
}

class HfGolden : public testing::TestWithParam<const char*> {};

TEST_P(HfGolden, ImportedAndExportedHasTheSameBytesInOneFileAndInShards) {
  const TempFolder out;
  const HfFolder golden(tests::kGolden + GetParam());
  const auto wanted = wanted_in(tests::kGolden + GetParam());
  const auto tensors = tensors_of(golden, wanted);

  export_hf({.folder = out.path() / "one", .spec = golden.spec()}, tensors);
  EXPECT_THAT(names_in(out.path() / "one"), ElementsAre(".lockstep-export", "config.json", "model.safetensors"));
  const HfFolder one(out.path() / "one");
  EXPECT_EQ(one.spec(), golden.spec());
  expect_same(one.find(wanted), golden.find(wanted));
  EXPECT_EQ(SafetensorsFile(out.path() / "one/model.safetensors").metadata(), (SafetensorsMetadata{{"format", "pt"}}));

  export_hf({.folder = out.path() / "many/", .spec = golden.spec(), .shard_limit = 20'000}, tensors);
  EXPECT_GT(names_in(out.path() / "many").size(), 6u);
  EXPECT_FALSE(fs::exists(out.path() / "many/model.safetensors"));
  const HfFolder many(out.path() / "many");
  EXPECT_EQ(many.spec(), golden.spec());
  expect_same(many.find(wanted), golden.find(wanted));
  const json index = json::parse(bytes_of(out.path() / "many/model.safetensors.index.json"));
  EXPECT_EQ(index.at("weight_map").size(), wanted.size());
  EXPECT_EQ(index.at("metadata").at("total_size").get<std::int64_t>() % 4, 0);
  EXPECT_THAT(names_in(out.path()), ElementsAre("many", "one"));
}

INSTANTIATE_TEST_SUITE_P(Folders, HfGolden,
                         testing::Values("gpt2-tiny", "llama-mha-8l", "llama-tied-scaled", "llama-tiny", "qwen2-tiny"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(HfExport, ConvertsToEveryFloatTypeOnTheWay) {
  const TempFolder out;
  const HfFolder golden(tests::kGolden + "llama-tiny");
  const auto wanted = wanted_in(tests::kGolden + "llama-tiny");
  const auto tensors = tensors_of(golden, wanted);
  const std::pair<DType, const char*> types[] = {
      {DType::f64, "float64"}, {DType::f32, "float32"}, {DType::bf16, "bfloat16"}, {DType::f16, "float16"}};
  for (const auto& [dtype, name] : types) {
    export_hf({.folder = out.path() / name, .spec = golden.spec(), .dtype = dtype}, tensors);
    EXPECT_EQ(json::parse(bytes_of(out.path() / name / "config.json")).at("torch_dtype"), name);
    const HfFolder read(out.path() / name);
    const auto found = read.find(wanted);
    for (std::size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i].dtype(), dtype);
      const float value = tensors[i].values.data<float>()[1];
      if (dtype == DType::f64) {
        EXPECT_EQ(found[i].data<double>()[1], static_cast<double>(value));
      }
      if (dtype == DType::bf16) {
        EXPECT_EQ(found[i].data<bf16>()[1].bits, bf16(value).bits);
      }
      if (dtype == DType::f16) {
        EXPECT_EQ(found[i].data<f16>()[1].bits, f16(value).bits);
      }
    }
  }
}

TEST(HfExport, ReplacesAnExportAndRefusesAnythingElse) {
  const TempFolder out;
  const HfFolder golden(tests::kGolden + "gpt2-tiny");
  const auto tensors = tensors_of(golden, wanted_in(tests::kGolden + "gpt2-tiny"));
  const HfExport what{.folder = out.path() / "x", .spec = golden.spec()};
  const auto refused = [&](const HfExport& e) { return refusal([&] { export_hf(e, tensors); }, ExitCode::usage); };
  fs::create_directory(what.folder);
  EXPECT_EQ(refused(what), "");  // empty
  HfExport shards = what;
  shards.shard_limit = 20'000;
  EXPECT_EQ(refused(shards), "");  // an export, all of which goes
  EXPECT_FALSE(fs::exists(what.folder / "model.safetensors"));
  EXPECT_EQ(refused(what), "");
  EXPECT_THAT(names_in(what.folder), ElementsAre(".lockstep-export", "config.json", "model.safetensors"));

  write_bytes(what.folder / "tokenizer.json", "mine");
  const auto before = everything_in(out.path());
  EXPECT_THAT(refused(what), HasSubstr("holds files that are not from an export"));
  EXPECT_TRUE(everything_in(out.path()) == before);
  HfExport told = what;
  told.replace = true;
  EXPECT_EQ(refused(told), "");
  EXPECT_FALSE(fs::exists(what.folder / "tokenizer.json"));

  fs::create_directory(what.folder / "inside");
  EXPECT_THAT(refused(told), HasSubstr("has folders inside"));
  told.folder = out.path() / "file";
  write_bytes(told.folder, "mine");
  EXPECT_THAT(refused(told), HasSubstr("is not a folder"));
  EXPECT_THAT(names_in(out.path()), ElementsAre("file", "x"));
}

TEST(HfExport, AFailureAtAnyOperationLeavesTheOldExportWhole) {
  const TempFolder out;
  const HfFolder golden(tests::kGolden + "gpt2-tiny");
  const auto tensors = tensors_of(golden, wanted_in(tests::kGolden + "gpt2-tiny"));
  const HfExport what{.folder = out.path() / "x", .spec = golden.spec()};
  export_hf(what, tensors);
  const auto before = everything_in(out.path());
  for (int fail_at = 0;; ++fail_at) {
    int count = 0;
    const std::string said = failure([&] {
      export_hf(what, tensors, Disk([&](std::string_view, const fs::path&) {
                  if (count++ == fail_at) throw EnvironmentError("test");
                }));
    });
    EXPECT_TRUE(everything_in(out.path()) == before) << fail_at;  // the new one has the same bytes
    EXPECT_THAT(names_in(out.path()), ElementsAre("x")) << fail_at;
    if (said.empty()) break;
  }
}

// Folders as the world has them, made from the golden ones.
class HfImport : public testing::Test {
 protected:
  void copy(const char* name) {
    source_ = tests::kGolden + name;
    wanted_ = wanted_in(source_);
    file_ = std::make_unique<SafetensorsFile>(source_ / "model.safetensors");
    fs::copy_file(source_ / "config.json", folder_.path() / "config.json", fs::copy_options::overwrite_existing);
    tensors_.clear();
    for (const LogicalTensor& t : wanted_) tensors_.push_back({t.name, file_->tensor(t.name)});
  }
  void write() { write_safetensors(folder_.path() / "model.safetensors", tensors_); }
  std::string refused() {
    return refusal([&] { HfFolder(folder_.path()).find(wanted_); }, ExitCode::bad_input_file);
  }
  void expect_found() {
    const HfFolder folder(folder_.path());
    expect_same(folder.find(wanted_), find_hf_tensors(*file_, wanted_));
  }

  TempFolder folder_;
  fs::path source_;
  std::vector<LogicalTensor> wanted_;
  std::unique_ptr<SafetensorsFile> file_;
  std::vector<NamedTensor> tensors_;
  const std::vector<float> extra_ = std::vector<float>(64 * 64, 1.0f);
};

TEST_F(HfImport, HubNamesOfGpt2AndBuffersAreUnderstood) {
  copy("gpt2-tiny");
  for (NamedTensor& t : tensors_) t.name = t.name.substr(std::string("transformer.").size());
  tensors_.push_back({"h.0.attn.bias", ConstTensor(extra_.data(), DType::f32, Device::cpu, {1, 1, 64, 64})});
  tensors_.push_back({"h.1.attn.masked_bias", ConstTensor(extra_.data(), DType::f32, Device::cpu, {})});
  write();
  expect_found();
  copy("llama-tiny");
  tensors_.push_back(
      {"model.layers.0.self_attn.rotary_emb.inv_freq", ConstTensor(extra_.data(), DType::f32, Device::cpu, {4})});
  write();
  expect_found();
}

TEST_F(HfImport, ATiedHeadMustBeTheEmbedding) {
  for (const auto& [folder, embedding] : {std::pair{"llama-tied-scaled", "model.embed_tokens.weight"},
                                          std::pair{"gpt2-tiny", "transformer.wte.weight"}}) {
    copy(folder);
    tensors_.push_back({"lm_head.weight", file_->tensor(embedding)});
    write();
    expect_found();
    const ConstTensor head = file_->tensor(embedding);
    std::vector<float> other(head.data<float>(), head.data<float>() + head.elements());
    other.back() += 1;
    tensors_.back().tensor = ConstTensor(other.data(), DType::f32, Device::cpu, head.shape());
    write();
    EXPECT_THAT(refused(), HasSubstr("'lm_head.weight' differs from the embedding, but the model ties the two"));
  }
}

TEST_F(HfImport, WhatIsMissingOrTooMuchOrOfAnotherShapeIsNamed) {
  copy("llama-tiny");
  const auto good = tensors_;
  tensors_.push_back({"model.extra.bias", ConstTensor(extra_.data(), DType::f32, Device::cpu, {4})});
  write();
  EXPECT_THAT(refused(), HasSubstr("tensor 'model.extra.bias' is not part of this model"));
  tensors_ = good;
  tensors_.erase(tensors_.begin() + 3);
  write();
  EXPECT_THAT(refused(), HasSubstr("tensor '" + wanted_[3].name + "' is missing"));
  tensors_ = good;
  tensors_[0].tensor = ConstTensor(extra_.data(), DType::f32, Device::cpu, {5});
  write();
  EXPECT_THAT(refused(), AllOf(HasSubstr("is [5], the model needs ["), HasSubstr(wanted_[0].name)));
  const std::vector<std::int32_t> ints(wanted_[0].elements());
  tensors_[0].tensor = ConstTensor(ints.data(), DType::i32, Device::cpu, Shape(std::span(wanted_[0].shape)));
  write();
  EXPECT_THAT(refused(), HasSubstr("holds I32, not floats"));
}

TEST_F(HfImport, AFolderWithoutWeightsIsRefused) {
  copy("llama-tiny");
  EXPECT_THAT(refused(), HasSubstr("holds neither model.safetensors nor model.safetensors.index.json"));
}

TEST_F(HfImport, AnIndexThatLiesIsRefused) {
  copy("llama-tiny");
  const HfFolder golden(source_);
  const auto tensors = tensors_of(golden, wanted_);
  export_hf({.folder = folder_.path(), .spec = golden.spec(), .shard_limit = 40'000, .replace = true}, tensors);
  const fs::path index = folder_.path() / "model.safetensors.index.json";
  const json good = json::parse(bytes_of(index));
  const auto said = [&](auto&& edit) {
    json bad = good;
    edit(bad);
    write_bytes(index, bad.dump());
    return refused();
  };
  const std::string name = "model.norm.weight", home = good.at("weight_map").at(name);
  const std::string other = home.find("00001-of") != std::string::npos ? "model-00002" : "model-00001";
  const std::string elsewhere = other + home.substr(11);
  EXPECT_EQ(said([](json&) {}), "");
  EXPECT_THAT(said([&](json& i) { i["weight_map"][name] = "../model.safetensors"; }), HasSubstr("no plain name"));
  EXPECT_THAT(said([&](json& i) { i["weight_map"][name] = "/etc/passwd"; }), HasSubstr("no plain name"));
  EXPECT_THAT(said([&](json& i) { i["weight_map"][name] = 1; }), HasSubstr("no plain name of a file but number"));
  EXPECT_THAT(said([&](json& i) { i["weight_map"][name] = elsewhere; }), HasSubstr("which the index does not say"));
  EXPECT_THAT(said([&](json& i) { i["weight_map"].erase(name); }), HasSubstr("which the index does not say"));
  EXPECT_THAT(said([&](json& i) { i["weight_map"]["model.none"] = home; }), HasSubstr("is not in " + home));
  EXPECT_THAT(said([&](json& i) { i["weight_map"]["x"] = "absent.safetensors"; }),
              HasSubstr("absent.safetensors is not there"));
  EXPECT_THAT(said([&](json& i) { i.erase("weight_map"); }), HasSubstr("has no object 'weight_map'"));
  EXPECT_THAT(said([&](json& i) { i["extra"] = 1; }), HasSubstr("unknown field 'extra'"));
  write_bytes(index, "[]");
  EXPECT_THAT(refused(), HasSubstr("not an object"));
}

}  // namespace
}  // namespace lockstep
