// A checkpoint gives back what was saved, to the bit, in whatever pieces it is asked for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "checkpoint/convert.h"
#include "checkpoint/fake_state.h"
#include "checkpoint/safetensors_writer.h"
#include "tensor/meta/stream.h"

namespace lockstep {
namespace {

using namespace checkpoint_tests;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Checkpoint, GivesBackEveryFloatTypeToTheBit) {
  const TempFolder folder;
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    const std::vector<FakeState::Kind> kinds = {{"weight", "a", {7, 13}, dtype}, {"m", "a", {7, 13}, dtype}};
    FakeState saved(1, kinds), loaded(1, kinds);
    saved.set(5);
    const fs::path path = save_checkpoint({.path = folder.path()}, progress_at(5), saved.tensors());
    Host host;
    const Checkpoint checkpoint = open_checkpoint(path);
    checkpoint.load(loaded.tensors(), host.stream);
    EXPECT_TRUE(loaded.is(5)) << name_of(dtype);
    EXPECT_EQ(checkpoint.progress(), progress_at(5));
  }
}

TEST(Checkpoint, HasTheLayoutTheHeaderPromises) {
  const TempFolder folder;
  EXPECT_EQ(save(folder.path() / "new/deep", 100), folder.path() / "new/deep/step-00000100");
  EXPECT_THAT(names_in(folder.path() / "new/deep"), ElementsAre("latest", "step-00000100"));
  EXPECT_THAT(names_in(folder.path() / "new/deep/step-00000100"),
              ElementsAre("manifest.json", "state-00000-of-00001.safetensors"));
  EXPECT_EQ(bytes_of(folder.path() / "new/deep/latest"), "step-00000100\n");
  const SafetensorsFile file(folder.path() / "new/deep/step-00000100/state-00000-of-00001.safetensors");
  ASSERT_TRUE(file.contains("weight/model.embed_tokens.weight"));
  EXPECT_EQ(file.find("weight/model.embed_tokens.weight")->shape, (std::vector<std::int64_t>{37, 24}));
}

// Saved by 1, loaded and saved by 3, loaded and saved by 5 and by 64 (some pieces empty), loaded by 1.
TEST(Checkpoint, ReshardsBetweenAnyNumbersOfPieces) {
  const TempFolder folder;
  Host host;
  FakeState first;
  first.set(9);
  fs::path path = save_checkpoint({.path = folder.path(), .keep = 9}, progress_at(1), first.tensors());
  int step = 1;
  for (const int pieces : {3, 5, 64, 2, 1}) {
    FakeState state(pieces);
    open_checkpoint(path).load(state.tensors(), host.stream);
    EXPECT_TRUE(state.is(9)) << pieces;
    path = save_checkpoint({.path = folder.path(), .keep = 9}, progress_at(++step), state.tensors());
  }
  const Checkpoint cut = open_checkpoint(folder.path() / step_folder_name(2));
  EXPECT_EQ(cut.manifest().find("weight", "model.norm.weight")->slices.size(), 3u);
}

TEST(Checkpoint, LargeStatesAreSpreadOverFiles) {
  const TempFolder folder;
  FakeState state(3);
  state.set(4);
  const fs::path path = save_checkpoint({.path = folder.path(), .file_limit = 1500}, progress_at(4), state.tensors());
  const Checkpoint checkpoint = open_checkpoint(path);
  EXPECT_GT(checkpoint.manifest().files.size(), 4u);
  for (const ManifestFile& file : checkpoint.manifest().files) EXPECT_LT(file.bytes, 1500 + 1000) << file.name;
  EXPECT_TRUE(holds(checkpoint, 4));
}

TEST(Checkpoint, KeepsAsManyAsItIsToldAndNeverLosesTheNewOne) {
  const TempFolder folder;
  for (const std::int64_t step : {1, 2, 3, 4}) save(folder.path(), step, 3);
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(2, 3, 4));
  save(folder.path(), 1, 1);  // back in time: the new one stays though others have higher steps
  EXPECT_THAT(names_in(folder.path()), ElementsAre("latest", "step-00000001"));
  EXPECT_TRUE(holds(*open_newest_whole(folder.path()), 1));
}

TEST(Checkpoint, AStepSavedAgainReplacesTheOldOne) {
  const TempFolder folder;
  save(folder.path(), 7);
  FakeState state;
  state.set(8);
  const fs::path path = save_checkpoint({.path = folder.path()}, progress_at(7), state.tensors());
  Host host;
  FakeState loaded;
  open_checkpoint(path).load(loaded.tensors(), host.stream);
  EXPECT_TRUE(loaded.is(8));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("latest", "step-00000007"));
}

TEST(Checkpoint, WeightsMayChangeTheirTypeAndNothingElseMay) {
  const TempFolder folder;
  const std::vector<float> values = {1.5f, -0.1f, 3e38f, 1e-40f, 65504.0f};
  std::vector<float> copy = values;
  std::vector<double> wide(5);
  std::vector<bf16> narrow(5);
  const LogicalTensor tensor{"w", {5}};
  const auto of = [&](const char* part, auto& room, DType dtype) {
    return std::vector<StateTensor>{{part, tensor, flat_range(0, 5), Tensor(room.data(), dtype, Device::cpu, {5})}};
  };
  std::vector<StateTensor> both = of("weight", copy, DType::f32);
  both.push_back(of("m", copy, DType::f32).front());
  const fs::path path = save_checkpoint({.path = folder.path()}, {}, both);
  const Checkpoint checkpoint = open_checkpoint(path);
  Host host;
  checkpoint.load(of("weight", wide, DType::f64), host.stream);
  checkpoint.load(of("weight", narrow, DType::bf16), host.stream);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(wide[i], static_cast<double>(values[i]));
    EXPECT_EQ(narrow[i].bits, bf16(values[i]).bits);
  }
  EXPECT_THAT(refusal([&] { checkpoint.load(of("m", wide, DType::f64), host.stream); }),
              HasSubstr("m of tensor 'w' is fp32, the run needs fp64"));
}

// Longer than what is converted at a time, in both directions.
TEST(Checkpoint, ALongTensorIsConvertedToTheEnd) {
  const TempFolder folder;
  const std::int64_t n = 3 * (1 << 18) + 5;
  std::vector<float> values(n);
  for (std::int64_t i = 0; i < n; ++i) values[i] = static_cast<float>(i % 251) - 125.0f;
  std::vector<double> loaded(n);
  const LogicalTensor tensor{"w", {n}};
  const StateTensor from[] = {
      {"weight", tensor, flat_range(0, n), Tensor(values.data(), DType::f32, Device::cpu, {n})}};
  const StateTensor to[] = {{"weight", tensor, flat_range(0, n), Tensor(loaded.data(), DType::f64, Device::cpu, {n})}};
  Host host;
  open_checkpoint(save_checkpoint({.path = folder.path()}, {}, from)).load(to, host.stream);
  EXPECT_TRUE(std::equal(values.begin(), values.end(), loaded.begin()));
  const NamedTensor narrow[] = {{"w", ConstTensor(values.data(), DType::f32, Device::cpu, {n}), DType::bf16}};
  write_safetensors(folder.path() / "narrow.safetensors", narrow);
  const SafetensorsFile file(folder.path() / "narrow.safetensors");
  const bf16* stored = file.tensor("w").data<bf16>();
  EXPECT_TRUE(
      std::equal(values.begin(), values.end(), stored, [](float a, bf16 b) { return a == static_cast<float>(b); }));
}

TEST(Checkpoint, AMissingTensorAndAnotherShapeAreNamed) {
  const TempFolder folder;
  const Checkpoint checkpoint = open_checkpoint(save(folder.path(), 3));
  Host host;
  const auto load = [&](const char* part, const char* name, std::vector<std::int64_t> shape) {
    FakeState state(1, {{part, name, std::move(shape), DType::f64}});
    return refusal([&] { checkpoint.load(state.tensors(), host.stream); });
  };
  EXPECT_THAT(load("weight", "model.absent", {2}), HasSubstr("weight of tensor 'model.absent' is not in"));
  EXPECT_THAT(load("m", "model.norm.weight", {29}), HasSubstr("m of tensor 'model.norm.weight' is not in"));
  EXPECT_THAT(load("weight", "model.norm.weight", {28}), HasSubstr("'model.norm.weight' is [29], the run needs [28]"));
  EXPECT_EQ(load("weight", "model.norm.weight", {29}), "");
}

TEST(Checkpoint, SlicesThatDoNotCoverATensorAreAMistakeOfTheCaller) {
  const TempFolder folder;
  FakeState state(3);
  std::vector<StateTensor> tensors = state.tensors();
  tensors.erase(tensors.begin() + 1);
  EXPECT_THROW(save_checkpoint({.path = folder.path()}, progress_at(1), tensors), ProgramError);
  tensors = state.tensors();
  tensors.push_back(tensors[1]);
  EXPECT_THROW(save_checkpoint({.path = folder.path()}, progress_at(1), tensors), ProgramError);
  tensors = state.tensors();
  ++tensors[1].range.begin;  // as many elements as belong there, one of them twice and one not at all
  EXPECT_THROW(save_checkpoint({.path = folder.path()}, progress_at(1), tensors), ProgramError);
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(Checkpoint, NothingIsFoundWhereNothingIs) {
  const TempFolder folder;
  EXPECT_FALSE(open_newest_whole(folder.path()));
  EXPECT_FALSE(open_newest_whole(folder.path() / "absent"));
  EXPECT_THAT(refusal([&] { open_checkpoint(folder.path()); }), HasSubstr("manifest.json"));
}

TEST(Checkpoint, StepsHaveOneNameEach) {
  EXPECT_EQ(step_folder_name(100), "step-00000100");
  EXPECT_EQ(step_of_folder_name("step-00000100"), 100);
  EXPECT_EQ(step_of_folder_name("step-123456789012"), 123456789012);
  for (const char* name : {"step-", "step-1", "step-000000100", "step--0000001", "step-0000000x", "step-00000001x",
                           "step-99999999999999999999", "latest", ".partial-step-00000001"})
    EXPECT_FALSE(step_of_folder_name(name)) << name;
}

TEST(ConvertFloats, RoundsOnceToNearestEven) {
  const double tie = 1 + 0x1p-8 + 0x1p-40;  // just above the middle of two bf16; by way of a float it would be the tie
  bf16 narrow;
  convert_floats(&narrow, DType::bf16, &tie, DType::f64, 1);
  EXPECT_EQ(static_cast<float>(narrow), 1 + 0x1p-7f);
  const double values[] = {0.1, -65520.0, std::nan(""), 0x1p-24, 1e300};
  f16 halves[5];
  convert_floats(halves, DType::f16, values, DType::f64, 5);
  EXPECT_EQ(halves[0].bits, f16(0.1f).bits);
  EXPECT_EQ(static_cast<float>(halves[1]), -INFINITY);
  EXPECT_TRUE(std::isnan(static_cast<float>(halves[2])));
  EXPECT_EQ(static_cast<float>(halves[3]), 0x1p-24f);
  EXPECT_EQ(static_cast<float>(halves[4]), INFINITY);
}

// Rounded once: fp32 in between must not make a value a tie that it is not.
TEST(Checkpoint, DoublesBesideATieAreRoundedToTheNearer) {
  constexpr double tie = 1 + 0x1p-8;  // between two neighbours in bf16
  const double values[] = {tie - 0x1p-40, tie, tie + 0x1p-40, -(tie - 0x1p-40), -(tie + 0x1p-40)};
  bf16 rounded[5];
  convert_floats(rounded, DType::bf16, values, DType::f64, 5);
  const float wanted[] = {1, 1, 1 + 0x1p-7f, -1, -(1 + 0x1p-7f)};
  for (int i = 0; i < 5; ++i) EXPECT_EQ(static_cast<float>(rounded[i]), wanted[i]) << i;
}

}  // namespace
}  // namespace lockstep
