// A manifest is read back as written; one that was forged or damaged is refused in one line that says where.
#include "checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "support/sanitizer.h"

namespace lockstep {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

Manifest example() {
  return {.progress = {.step = 100,
                       .updates = 99,
                       .samples = 2400,
                       .seed = ~std::uint64_t{0},
                       .data_fingerprint = 0xfedcba9876543210ull,
                       .run_file = "[run]\nout = \"é\"\n"},
          .tensors = {{.part = "weight",
                       .name = "a",
                       .shape = {2, 3},
                       .dtype = DType::f32,
                       .slices = {{.file = "s0", .entry = "weight/a:0-4", .range = flat_range(0, 4)},
                                  {.file = "s1", .entry = "weight/a:4-6", .range = flat_range(4, 6)}}},
                      {.part = "m",
                       .name = "a",
                       .shape = {},
                       .dtype = DType::bf16,
                       .slices = {{.file = "s0", .entry = "m/a", .range = flat_range(0, 1)}}}},
          .files = {{.name = "s0", .bytes = 1000, .checksum = 7}, {.name = "s1", .bytes = 0, .checksum = 1ull << 63}},
          .companions = {}};
}

std::string refusal_of_manifest(std::string_view text) {
  try {
    parse_manifest(text, "manifest.json");
    return "";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::checkpoint);
    EXPECT_THAT(error.what(), AllOf(StartsWith("manifest.json: "), HasSubstr("; "), Not(HasSubstr("\n"))));
    return error.what();
  }
}

// The example after an edit, under a seal that holds.
template <class Edit>
std::string edited(Edit&& edit) {
  json document = json::parse(manifest_text(example()));
  document.erase("xxh3");
  edit(document);
  return seal_manifest(document.dump());
}

TEST(Manifest, IsReadBackAsWritten) {
  EXPECT_EQ(parse_manifest(manifest_text(example()), "m"), example());
  EXPECT_EQ(parse_manifest(edited([](json&) {}), "m"), example());
  EXPECT_EQ(parse_manifest(manifest_text({}), "m"), Manifest{});
}

// Programs of before read what they could read.
TEST(Manifest, CompanionsMakeANewerVersion) {
  Manifest manifest = example();
  EXPECT_THAT(manifest_text(manifest), HasSubstr("\"version\":1,"));
  manifest.companions = {{.name = "hf-config.json", .bytes = 3, .checksum = 9},
                         {.name = "hf-tokenizer.json", .bytes = 0, .checksum = 8}};
  EXPECT_THAT(manifest_text(manifest), HasSubstr("\"version\":3,"));
  EXPECT_EQ(parse_manifest(manifest_text(manifest), "m"), manifest);
}

TEST(Manifest, KeepsTheLossScaleOfARunThatHasOne) {
  Manifest manifest = example();
  manifest.progress.loss_scale = {.exponent = 15, .steps = 1999};
  EXPECT_THAT(manifest_text(manifest),
              AllOf(HasSubstr("\"version\":4,"), HasSubstr("\"loss_scale\":32768,\"loss_scale_steps\":1999}")));
  EXPECT_EQ(parse_manifest(manifest_text(manifest), "m"), manifest);
  manifest.progress.loss_scale = {.exponent = LossScale::kMost, .steps = 0};
  EXPECT_EQ(parse_manifest(manifest_text(manifest), "m"), manifest);
}

TEST(Manifest, KeepsWhatLossSpikesHaveLeftOutWithOrWithoutALossScale) {
  Manifest manifest = example();
  manifest.progress.spikes = LossSpikeState{{0, 6488}, {2.5, 0.1, 1e-300}};
  EXPECT_THAT(manifest_text(manifest), HasSubstr("\"version\":5,"));
  EXPECT_EQ(parse_manifest(manifest_text(manifest), "m"), manifest);
  manifest.progress.loss_scale = {.exponent = 15, .steps = 1999};
  EXPECT_EQ(parse_manifest(manifest_text(manifest), "m"), manifest);
  manifest.progress.spikes = LossSpikeState{};
  EXPECT_EQ(parse_manifest(manifest_text(manifest), "m"), manifest);
}

TEST(Manifest, AFlippedBitAnywhereIsNoticed) {
  const std::string text = manifest_text(example());
  for (std::size_t at = 0; at < text.size(); ++at)
    for (const int bit : {0, 5, 7}) {
      std::string bad = text;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      ASSERT_NE(refusal_of_manifest(bad), "") << "byte " << at;
    }
}

TEST(Manifest, ATextCutShortIsNoticed) {
  const std::string text = manifest_text(example());
  for (std::size_t length = 0; length < text.size(); ++length)
    ASSERT_NE(refusal_of_manifest(text.substr(0, length)), "") << length;
  EXPECT_NE(refusal_of_manifest(text + " "), "");
}

struct Forgery {
  const char* name;
  void (*edit)(json&);
  const char* reason;
};
std::ostream& operator<<(std::ostream& out, const Forgery& forgery) { return out << forgery.name; }

void add_companion(json& document, const std::string& name) {
  document["version"] = 3;
  document["companions"].push_back({{"name", name}, {"bytes", 3}, {"xxh3", "0000000000000007"}});
}

void add_loss_scale(json& document, const json& scale) {
  document["version"] = 4;
  document["companions"] = json::array();
  document["progress"]["loss_scale"] = scale;
  document["progress"]["loss_scale_steps"] = 3;
}

void add_spikes(json& document, const json& skipped, const json& losses) {
  document["version"] = 5;
  document["companions"] = json::array();
  document["progress"]["skipped"] = skipped;
  document["progress"]["losses"] = losses;
}

const Forgery kForgeries[] = {
    {"NoPowerOfTwo", [](json& d) { add_loss_scale(d, 3); }, "field 'progress.loss_scale' is not a power of two"},
    {"HugeLossScale", [](json& d) { add_loss_scale(d, std::uint64_t{1} << 33); }, "from 1 to 4294967296"},
    {"NoLossScale",
     [](json& d) {
       add_loss_scale(d, 2);
       d["progress"].erase("loss_scale");
     },
     "field 'progress.loss_scale' is missing"},
    {"LossScaleOfAnOlderVersion",
     [](json& d) {
       add_loss_scale(d, 2);
       d["version"] = 3;
     },
     "'progress' has 8 fields where 6 belong"},
    {"OtherFormat", [](json& d) { d["format"] = "zip"; }, "field 'format' is not 'lockstep checkpoint'"},
    {"NoFormat", [](json& d) { d.erase("format"); }, "field 'format' is missing"},
    {"SkippedNoSample",
     [](json& d) {
       add_spikes(d, {1, -1}, {0.5});
     },
     "holds something that is not the number of a sample"},
    {"LossesNoNumber", [](json& d) { add_spikes(d, {1}, {"x"}); }, "'progress.losses' holds something that is no loss"},
    {"TooManyLosses", [](json& d) { add_spikes(d, {1}, json(std::vector<double>(101, 1.0))); },
     "'progress.losses' has 101 items, at most 100 are allowed"},
    {"SpikesOfAnOlderVersion",
     [](json& d) {
       add_spikes(d, {1}, {0.5});
       d["version"] = 3;
     },
     "'progress' has 8 fields where 6 belong"},
    {"NewerVersion", [](json& d) { d["version"] = 6; }, "field 'version' is 6, this program reads versions 1 to 5"},
    {"NoVersion", [](json& d) { d["version"] = 0; }, "field 'version' is 0, this program reads versions 1 to 5"},
    {"NoCompanions", [](json& d) { d["version"] = 3; }, "field 'companions' is missing"},
    {"CompanionsOfAnOlderVersion", [](json& d) { d["companions"] = json::array(); }, "has 6 fields where 5 belong"},
    {"UnknownCompanion", [](json& d) { add_companion(d, "hf-model.safetensors"); },
     "not a file that a checkpoint keeps"},
    {"CompanionUnderItsOwnName", [](json& d) { add_companion(d, "tokenizer.json"); }, "not a file that a checkpoint"},
    {"CompanionElsewhere", [](json& d) { add_companion(d, "hf-/../x"); }, "not the plain name of a file"},
    {"CompanionTwice",
     [](json& d) {
       add_companion(d, "hf-vocab.json");
       add_companion(d, "hf-vocab.json");
     },
     "'hf-vocab.json', which comes twice"},
    {"VersionText", [](json& d) { d["version"] = "1"; }, "field 'version' is not a whole number"},
    {"UnknownField", [](json& d) { d["extra"] = 1; }, "has 6 fields where 5 belong"},
    {"UnknownFieldInProgress", [](json& d) { d["progress"]["epoch"] = 1; }, "'progress' has 7 fields where 6 belong"},
    {"UnknownFieldInASlice", [](json& d) { d["tensors"][0]["slices"][0]["x"] = 1; },
     "'tensors[0].slices[0]' has 5 fields where 4 belong"},
    {"UnknownFieldInAFile", [](json& d) { d["files"][1]["x"] = 1; }, "'files[1]' has 4 fields"},
    {"UnknownFieldForAKnownOne",
     [](json& d) {
       d["files"][1]["x"] = 1;
       d["files"][1].erase("bytes");
     },
     "field 'files[1].bytes' is missing"},
    {"NegativeStep", [](json& d) { d["progress"]["step"] = -1; }, "field 'progress.step' is not a whole number"},
    {"HugeStep", [](json& d) { d["progress"]["step"] = ~std::uint64_t{0}; }, "field 'progress.step' is not a whole"},
    {"FractionalStep", [](json& d) { d["progress"]["step"] = 1.5; }, "field 'progress.step' is not a whole number"},
    {"ProgressList", [](json& d) { d["progress"] = json::array(); }, "field 'progress' is not an object"},
    {"LongRunFile", [](json& d) { d["progress"]["run_file"] = std::string((1 << 20) + 1, 'x'); },
     "field 'progress.run_file' has 1048577 bytes"},
    {"ShortFingerprint", [](json& d) { d["progress"]["data_fingerprint"] = "1"; }, "is not 16 lower-case hex digits"},
    {"UpperCaseSum", [](json& d) { d["files"][0]["xxh3"] = "ABCDEF0123456789"; }, "is not 16 lower-case hex digits"},
    {"TraversalUp", [](json& d) { d["files"][0]["name"] = "../s0"; }, "'../s0', which is not the plain name"},
    {"TraversalAbsolute", [](json& d) { d["files"][0]["name"] = "/etc/passwd"; }, "not the plain name of a file"},
    {"TraversalInside", [](json& d) { d["files"][0]["name"] = "a/b"; }, "not the plain name of a file"},
    {"HiddenFile", [](json& d) { d["files"][0]["name"] = ".s0"; }, "not the plain name of a file"},
    {"DotDot", [](json& d) { d["files"][0]["name"] = ".."; }, "not the plain name of a file"},
    {"NulInAName", [](json& d) { d["files"][0]["name"] = std::string("s0\0x", 4); }, "not the plain name of a file"},
    {"EmptyName", [](json& d) { d["files"][0]["name"] = ""; }, "not the plain name of a file"},
    {"TheManifestItself", [](json& d) { d["files"][0]["name"] = "manifest.json"; }, "not the plain name of a file"},
    {"FileTwice", [](json& d) { d["files"][1]["name"] = "s0"; }, "field 'files[1].name' is 's0', which comes twice"},
    {"NegativeBytes", [](json& d) { d["files"][0]["bytes"] = -1; }, "field 'files[0].bytes' is not a whole number"},
    {"TensorTwice", [](json& d) { d["tensors"][1]["part"] = "weight"; }, "'a', which this part has already"},
    {"NoPart", [](json& d) { d["tensors"][1]["part"] = ""; }, "field 'tensors[1].part' is ''"},
    {"PartWithSlash", [](json& d) { d["tensors"][1]["part"] = "a/b"; }, "field 'tensors[1].part' is 'a/b'"},
    {"NoName", [](json& d) { d["tensors"][1]["name"] = ""; }, "field 'tensors[1].name' is empty"},
    {"LongName", [](json& d) { d["tensors"][1]["name"] = std::string(2000, 'x'); }, "has 2000 bytes, at most 1024"},
    {"IntegerTensor", [](json& d) { d["tensors"][0]["dtype"] = "I32"; }, "is 'I32', which is no float type"},
    {"FiveDims",
     [](json& d) {
       d["tensors"][0]["shape"] = {1, 1, 1, 2, 3};
     },
     "has 5 dims, at most 4"},
    {"ZeroExtent",
     [](json& d) {
       d["tensors"][0]["shape"] = {0, 3};
     },
     "not a whole number of at least 1"},
    {"HugeShape",
     [](json& d) {
       d["tensors"][0]["shape"] = {1ll << 40, 1ll << 40};
     },
     "more elements than fit"},
    {"Overlap", [](json& d) { d["tensors"][0]["slices"][1]["begin"] = 3; }, "is 3, the slice before ends at 4"},
    {"Hole", [](json& d) { d["tensors"][0]["slices"][1]["begin"] = 5; }, "is 5, the slice before ends at 4"},
    {"NotFromTheStart", [](json& d) { d["tensors"][0]["slices"][0]["begin"] = 1; }, "is 1, the slice before ends at 0"},
    {"NotToTheEnd", [](json& d) { d["tensors"][0]["slices"][1]["end"] = 5; }, "cover 5 of 6 elements"},
    {"PastTheEnd", [](json& d) { d["tensors"][0]["slices"][1]["end"] = 7; }, "is 7, not above 4 and at most 6"},
    {"EmptySlice", [](json& d) { d["tensors"][0]["slices"][0]["end"] = 0; }, "is 0, not above 0"},
    {"NoSlices", [](json& d) { d["tensors"][0]["slices"] = json::array(); }, "cover 0 of 6 elements"},
    {"SlicesObject", [](json& d) { d["tensors"][0]["slices"] = json::object(); }, "'tensors[0].slices' is not a list"},
    {"UnlistedFile", [](json& d) { d["tensors"][0]["slices"][0]["file"] = "s9"; }, "'s9', which is not in the list"},
    {"EntryTwice", [](json& d) { d["tensors"][1]["slices"][0]["entry"] = "weight/a:0-4"; },
     "'weight/a:0-4', which another slice has already"},
};

class ManifestForged : public testing::TestWithParam<Forgery> {};
TEST_P(ManifestForged, IsRefused) {
  EXPECT_THAT(refusal_of_manifest(edited(GetParam().edit)), HasSubstr(GetParam().reason));
}
INSTANTIATE_TEST_SUITE_P(Edits, ManifestForged, testing::ValuesIn(kForgeries),
                         [](const auto& info) { return std::string(info.param.name); });

// A matrix of 4 x 6: two columns of every row, half a row, the whole rows of the rest, and the other half.
Manifest with_columns() {
  Manifest manifest = example();
  manifest.tensors[0].shape = {4, 6};
  manifest.tensors[0].slices = {
      {.file = "s0", .entry = "weight/a:0-20:2/6", .range = {.begin = 0, .row = 2, .pitch = 6, .rows = 4}},
      {.file = "s1", .entry = "weight/a:2-4", .range = flat_range(2, 4)},
      {.file = "s1", .entry = "weight/a:4-6", .range = flat_range(4, 6)},
      {.file = "s1", .entry = "weight/a:8-24:4/6", .range = {.begin = 8, .row = 4, .pitch = 6, .rows = 3}}};
  return manifest;
}

template <class Edit>
std::string edited_columns(Edit&& edit) {
  json document = json::parse(manifest_text(with_columns()));
  document.erase("xxh3");
  edit(document, document["tensors"][0]["slices"]);
  return seal_manifest(document.dump());
}

TEST(Manifest, OfRowsThatLieApartIsVersionTwoAndReadBackAsWritten) {
  EXPECT_EQ(parse_manifest(manifest_text(with_columns()), "m"), with_columns());
  EXPECT_THAT(manifest_text(with_columns()), HasSubstr("\"version\":2,"));
  EXPECT_THAT(manifest_text(with_columns()), HasSubstr("\"begin\":0,\"end\":20,\"row\":2,\"pitch\":6}"));
  EXPECT_THAT(manifest_text(with_columns()), HasSubstr("\"begin\":2,\"end\":4}"));
  EXPECT_THAT(manifest_text(example()), AllOf(HasSubstr("\"version\":1,"), Not(HasSubstr("row\""))));
  EXPECT_EQ(parse_manifest(edited([](json& d) { d["version"] = 2; }), "m"), example());
}

struct ColumnsForgery {
  const char* name;
  void (*edit)(json& document, json& slices);
  const char* reason;
};
std::ostream& operator<<(std::ostream& out, const ColumnsForgery& forgery) { return out << forgery.name; }

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

const ColumnsForgery kColumnsForgeries[] = {
    {"InVersionOne", [](json& d, json&) { d["version"] = 1; }, "'tensors[0].slices[0]' has 6 fields where 4 belong"},
    {"NoPitch", [](json&, json& s) { s[0].erase("pitch"); }, "field 'tensors[0].slices[0].pitch' is missing"},
    {"NoRow", [](json&, json& s) { s[0].erase("row"); }, "field 'tensors[0].slices[0].row' is missing"},
    {"UnknownField", [](json&, json& s) { s[0]["x"] = 1; }, "has 7 fields where 6 belong"},
    {"UnknownFieldInAFlatOne", [](json&, json& s) { s[1]["x"] = 1; }, "has 5 fields where 4 belong"},
    {"ZeroRow", [](json&, json& s) { s[0]["row"] = 0; }, "slices[0].row' is not a whole number from 1"},
    {"NegativeRow", [](json&, json& s) { s[0]["row"] = -2; }, "slices[0].row' is not a whole number from 1"},
    {"TextRow", [](json&, json& s) { s[0]["row"] = "2"; }, "slices[0].row' is not a whole number from 1"},
    {"ZeroPitch", [](json&, json& s) { s[0]["pitch"] = 0; }, "slices[0].pitch' is not a whole number from 1"},
    {"PitchOver63Bits", [](json&, json& s) { s[0]["pitch"] = ~std::uint64_t{0}; }, "pitch' is not a whole number"},
    {"RowAbovePitch", [](json&, json& s) { s[0]["row"] = 7; }, "slices[0].row' is 7, not below the pitch of 6"},
    {"RowIsPitch", [](json&, json& s) { s[0]["row"] = 6; }, "slices[0].row' is 6, not below the pitch of 6"},
    {"HugeRow", [](json&, json& s) { s[0]["row"] = kHuge; }, "is 9223372036854775807, not below the pitch of 6"},
    {"HugeRowAndPitch",
     [](json&, json& s) {
       s[0]["row"] = kHuge - 1;
       s[0]["pitch"] = kHuge;
     },
     "slices[0].end' is 20, not where the second or a later row of 9223372036854775806 ends"},
    {"HugePitch", [](json&, json& s) { s[0]["pitch"] = kHuge; }, "slices[0].end' is 20, not where the second"},
    {"OneRow", [](json&, json& s) { s[0]["end"] = 2; }, "slices[0].end' is 2, not where the second or a later row"},
    {"EndInsideOfARow", [](json&, json& s) { s[0]["end"] = 19; }, "slices[0].end' is 19, not where the second"},
    {"EndBehindARow", [](json&, json& s) { s[0]["end"] = 21; }, "slices[0].end' is 21, not where the second"},
    {"EndBeforeARow", [](json&, json& s) { s[3]["begin"] = 22; }, "slices[3].end' is 24, not where the second"},
    {"RowsBeyondTheShape", [](json&, json& s) { s[3]["end"] = 30; }, "is 30, not above 8 and at most 24"},
    {"HugeEnd", [](json&, json& s) { s[3]["end"] = kHuge; }, "not above 8 and at most 24"},
    {"HugeBegin", [](json&, json& s) { s[3]["begin"] = kHuge; }, "not above 9223372036854775807"},
    {"AnotherPitch", [](json&, json& s) { s[3]["pitch"] = 12; }, "slices[3].pitch' is 12, that of a slice before is 6"},
    {"OutOfOrder", [](json&, json& s) { std::swap(s[1], s[2]); },
     "slices[2].begin' is 2, the slice before begins at 4"},
    {"BeginsTwice", [](json&, json& s) { s[2]["begin"] = 2; }, "slices[2].begin' is 2, the slice before begins at 2"},
    {"OverlapOfFlatOnes", [](json&, json& s) { s[2]["begin"] = 3; }, "slices[2]' has elements 3 to 4, which another"},
    {"OverlapWithRows", [](json&, json& s) { s[2]["end"] = 7; }, "slices[2]' has elements 6 to 7, which another"},
    {"OverlapOfRows", [](json&, json& s) { s[0]["row"] = 3, s[0]["end"] = 21; }, "has elements 2 to 3, which another"},
    {"Hole", [](json&, json& s) { s[1]["end"] = 3; }, "field 'tensors[0].slices' leave out elements 3 to 4"},
    {"HoleInEveryRow", [](json&, json& s) { s[3]["begin"] = 9, s[3]["row"] = 3; }, "leave out elements 8 to 9"},
    {"NoColumns", [](json&, json& s) { s.erase(0); }, "leave out elements 0 to 2"},
    {"NoRest", [](json&, json& s) { s.erase(3); }, "leave out elements 8 to 12"},
    {"ARowTooFew", [](json&, json& s) { s[3]["end"] = 18; }, "leave out elements 20 to 24"},
};

class ManifestOfColumnsForged : public testing::TestWithParam<ColumnsForgery> {};
TEST_P(ManifestOfColumnsForged, IsRefused) {
  EXPECT_THAT(refusal_of_manifest(edited_columns(GetParam().edit)), HasSubstr(GetParam().reason));
}
INSTANTIATE_TEST_SUITE_P(Edits, ManifestOfColumnsForged, testing::ValuesIn(kColumnsForgeries),
                         [](const auto& info) { return std::string(info.param.name); });

// As many slices as fit, of a tensor as large as any: stairs, so that no row of it has what the row above has.
TEST(Manifest, OfVeryManyHugeSlicesIsReadInTime) {
  const std::int64_t width = 60000, height = (std::int64_t{1} << 59) / width;
  Manifest manifest = example();
  manifest.tensors[0].shape = {height, width};
  std::vector<ManifestSlice>& slices = manifest.tensors[0].slices;
  slices.clear();
  const auto add = [&](std::int64_t row, std::int64_t column, std::int64_t end_row) {
    const std::int64_t begin = row * width + column;
    slices.push_back({.file = "s0",
                      .entry = std::to_string(begin),
                      .range = {.begin = begin, .row = 1, .pitch = width, .rows = end_row - row}});
  };
  for (std::int64_t i = 0; i < width; ++i) add(0, i, i + 2);
  for (std::int64_t i = 0; i < width; ++i) add(i + 2, i, height);
  const std::string text = manifest_text(manifest);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(refusal_of_manifest(text), "");
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(taken.count(),
            5.0 * tests::kSlowdown);  // less than one; a look at every slice for every slice takes twenty
  --slices.back().range.rows;
  EXPECT_THAT(refusal_of_manifest(manifest_text(manifest)), HasSubstr("leave out elements"));
}

TEST(Manifest, KeysThatComeTwiceAndOtherTextsAreRefused) {
  const std::string text = manifest_text(example());
  std::string object = text.substr(text.find(','));  // without its seal
  object.front() = '{';
  std::string twice = object;
  twice.insert(twice.find("\"step\""), "\"step\":1,");
  EXPECT_THAT(refusal_of_manifest(seal_manifest(twice)), HasSubstr("field 'step' appears twice"));
  EXPECT_THAT(refusal_of_manifest(seal_manifest("{]")), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal_of_manifest(seal_manifest("{\"a\":1}")), HasSubstr("field 'format' is missing"));
  EXPECT_THAT(refusal_of_manifest(object), HasSubstr("does not begin with its checksum"));
  EXPECT_THAT(refusal_of_manifest(""), HasSubstr("does not begin with its checksum"));
  EXPECT_THAT(refusal_of_manifest(std::string(kMaxManifestBytes + 1, ' ')), HasSubstr("bytes long, at most"));
}

}  // namespace
}  // namespace lockstep
