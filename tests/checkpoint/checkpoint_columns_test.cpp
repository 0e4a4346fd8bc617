// Ranks that hold columns of matrices: what any layout saved, any other loads, element for element.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>

#include "base/integers.h"
#include "checkpoint/fake_state.h"
#include "checkpoint/rank_saves.h"
#include "checkpoint/state_files.h"
#include "support/program.h"
#include "support/sanitizer.h"

namespace lockstep {
namespace {

using namespace checkpoint_tests;
using testing::ElementsAre;
using testing::HasSubstr;

// `columns` ranks have a part of every row each (none: all of it), and each part, laid end to end, is cut into `zero`.
struct Layout {
  const char* name;
  std::int64_t columns, zero;
};
constexpr Layout kLayouts[] = {{"flat 1", 1, 1},    {"flat 3", 1, 3},    {"columns 2", 2, 1},
                               {"columns 3", 3, 1}, {"columns 4", 4, 1}, {"columns 2 x zero 3", 2, 3}};

struct Matrix {
  const char* name;
  std::vector<std::int64_t> shape;
  std::int64_t pitch;  // of its columns
};
const Matrix kMatrices[] = {
    {"odd", {7, 12}, 12}, {"tall", {120, 64}, 64}, {"thin", {5, 4}, 4}, {"deep", {3, 8, 5}, 40}, {"bias", {24}, 24}};

constexpr DType kTypes[] = {DType::f32, DType::bf16};  // weights and moments

// One rank's pieces, of buffers that it owns. A matrix whose width the columns do not divide is cut unevenly.
class Rank {
 public:
  Rank(const Layout& layout, std::int64_t rank) {
    for (const Matrix& m : kMatrices)
      for (const bool moment : {false, true}) add(m, moment, layout, rank / layout.zero, rank % layout.zero);
  }
  Rank(Rank&&) = default;

  const std::vector<StateTensor>& pieces() const { return pieces_; }

  // Each element says which it is; what is not loaded says something else.
  void set() {
    each([](float value, auto& element) { element = std::decay_t<decltype(element)>(value); });
  }
  void check(const std::string& what) const {
    std::int64_t wrong = 0;
    each([&](float value, const auto& element) {
      wrong += static_cast<float>(element) != static_cast<float>(std::decay_t<decltype(element)>(value));
    });
    EXPECT_EQ(wrong, 0) << what;
  }

 private:
  void add(const Matrix& m, bool moment, const Layout& layout, std::int64_t column, std::int64_t cut) {
    const LogicalTensor tensor{m.name, m.shape};
    const std::int64_t left = m.pitch * column / layout.columns, right = m.pitch * (column + 1) / layout.columns;
    const std::int64_t row = right - left, height = tensor.elements() / m.pitch;
    // ZeRO's share of the local elements begins and ends in the middle of a row.
    const std::int64_t from = height * row * cut / layout.zero, to = height * row * (cut + 1) / layout.zero;
    const auto piece = [&](std::int64_t begin, std::int64_t held, bool rows) {
      const DType dtype = kTypes[moment];
      auto& room = rooms_.emplace_back(std::make_unique<std::vector<double>>(held, -1.0));
      pieces_.push_back(
          {.part = moment ? "m" : "weight",
           .tensor = tensor,
           .range = rows ? StridedRange{begin, row, m.pitch, held / row} : flat_range(begin, begin + held),
           .live = Tensor(room->data(), dtype, Device::cpu, {held})});
    };
    const auto place = [&](std::int64_t local) { return local / row * m.pitch + left + local % row; };
    const std::int64_t first = std::min(to, round_up(from, row)), last = std::max(first, to / row * row);
    if (first > from) piece(place(from), first - from, false);
    if (last > first) piece(place(first), last - first, true);
    if (to > last) piece(place(last), to - last, false);
  }

  template <class Body>
  void each(Body&& body) const {
    for (const StateTensor& t : pieces_)
      for (std::int64_t i = 0; i < t.live.elements(); ++i) {
        const std::int64_t e = t.range.at(i);
        const auto value = static_cast<float>(e) + (t.part == "m" ? 0.5f : 0.0f);
        if (t.live.dtype() == DType::f32)
          body(value, static_cast<float*>(t.live.raw())[i]);
        else
          body(value, static_cast<bf16*>(t.live.raw())[i]);
      }
  }

  std::vector<std::unique_ptr<std::vector<double>>> rooms_;
  std::vector<StateTensor> pieces_;
};

fs::path save_as(const Layout& layout, const fs::path& folder) {
  run_ranks(static_cast<int>(layout.columns * layout.zero), [&](std::unique_ptr<Communicator> group) {
    Rank rank(layout, group->rank());
    rank.set();
    save_checkpoint({.path = folder}, progress_at(4), rank.pieces(), Disk(), group.get());
  });
  return folder / step_folder_name(4);
}

TEST(CheckpointColumns, AnyLayoutLoadsWhatAnyOtherSaved) {
  for (const Layout& saved : kLayouts) {
    const TempFolder folder;
    const fs::path path = save_as(saved, folder.path());
    const bool apart = bytes_of(path / kManifestName).find("\"pitch\"") != std::string::npos;
    EXPECT_EQ(apart, saved.columns > 1) << saved.name;
    EXPECT_NE(bytes_of(path / kManifestName).find(apart ? "\"version\":2," : "\"version\":1,"), std::string::npos);
    const Checkpoint checkpoint = open_checkpoint(path);
    for (const Layout& loaded : kLayouts)
      for (std::int64_t r = 0; r < loaded.columns * loaded.zero; ++r) {
        Host host;
        Rank rank(loaded, r);
        checkpoint.load(rank.pieces(), host.stream);
        rank.check(fmt::format("{} saved, rank {} of {} loads", saved.name, r, loaded.name));
      }
  }
}

// Columns of the last dim of what was saved as columns of the middle one.
TEST(CheckpointColumns, RowsOfAnotherPitchAreLoadedToo) {
  const TempFolder folder;
  const Checkpoint checkpoint = open_checkpoint(save_as({"columns 2", 2, 1}, folder.path()));
  std::vector<float> loaded(48);
  const StateTensor want[] = {{.part = "weight",
                               .tensor = {"deep", {3, 8, 5}},
                               .range = {.begin = 1, .row = 2, .pitch = 5, .rows = 24},
                               .live = Tensor(loaded.data(), DType::f32, Device::cpu, {48})}};
  Host host;
  checkpoint.load(want, host.stream);
  for (std::size_t i = 0; i < 48; ++i) EXPECT_EQ(loaded[i], static_cast<float>(1 + i / 2 * 5 + i % 2)) << i;
}

TEST(CheckpointColumns, WeightsMayChangeTheirTypeAndMomentsMayNot) {
  const TempFolder folder;
  const Checkpoint checkpoint = open_checkpoint(save_as({"columns 4", 4, 1}, folder.path()));
  std::vector<double> loaded(7 * 5);
  StateTensor want{.part = "weight",
                   .tensor = {"odd", {7, 12}},
                   .range = {.begin = 2, .row = 5, .pitch = 12, .rows = 7},
                   .live = Tensor(loaded.data(), DType::f64, Device::cpu, {7 * 5})};
  Host host;
  checkpoint.load(std::span(&want, 1), host.stream);
  for (std::size_t i = 0; i < loaded.size(); ++i) EXPECT_EQ(loaded[i], static_cast<double>(2 + i / 5 * 12 + i % 5));
  want.part = "m";
  EXPECT_THAT(refusal([&] { checkpoint.load(std::span(&want, 1), host.stream); }), HasSubstr("the run needs fp64"));
}

TEST(CheckpointColumns, AreMatricesOfTheirOwnInTheFiles) {
  const TempFolder folder;
  const Checkpoint checkpoint = open_checkpoint(save_as({"columns 2 x zero 3", 2, 3}, folder.path()));
  const ManifestTensor* odd = checkpoint.manifest().find("weight", "odd");
  std::vector<std::string> entries;
  for (const ManifestSlice& s : odd->slices) entries.push_back(s.entry);
  // 42 elements of each half, cut at 14 and 28: two rows and two elements, and so on.
  EXPECT_THAT(entries, ElementsAre("weight/odd:0-18:6/12", "weight/odd:6-24:6/12", "weight/odd:24-26",
                                   "weight/odd:26-30", "weight/odd:30-32", "weight/odd:32-36", "weight/odd:36-42",
                                   "weight/odd:42-48", "weight/odd:48-52", "weight/odd:52-54", "weight/odd:54-58",
                                   "weight/odd:58-60", "weight/odd:60-78:6/12", "weight/odd:66-84:6/12"));
  const SafetensorsFile file(checkpoint.path() / odd->slices[0].file);
  EXPECT_THAT(file.find("weight/odd:0-18:6/12")->shape, ElementsAre(2, 6));
}

TEST(CheckpointColumns, OnlyFilesWithWantedColumnsAreRead) {
  const TempFolder folder;
  const fs::path path = save_as({"columns 4", 4, 1}, folder.path());
  const std::vector<ManifestFile> files = open_checkpoint(path).manifest().files;
  ASSERT_EQ(files.size(), 4u);
  fs::remove(path / files[2].name);
  fs::remove(path / files[3].name);
  const Checkpoint checkpoint = open_verified_checkpoint(path);
  Host host;
  Rank left({"columns 2", 2, 1}, 0), right({"columns 2", 2, 1}, 1);
  checkpoint.load(left.pieces(), host.stream);
  left.check("the left half");
  EXPECT_THAT(refusal([&] { checkpoint.load(right.pieces(), host.stream); }), HasSubstr(files[2].name));
}

// What join_state says of a 7 x 12 matrix in three columns, after a change.
std::string join_words(const std::function<void(std::vector<std::vector<StateTensor>>&)>& change) {
  std::vector<float> room(84);
  std::vector<std::vector<StateTensor>> ranks(3);
  for (std::int64_t r = 0; r < 3; ++r)
    ranks[static_cast<std::size_t>(r)].push_back({.part = "m",
                                                  .tensor = {"a", {7, 12}},
                                                  .range = {.begin = 4 * r, .row = 4, .pitch = 12, .rows = 7},
                                                  .live = Tensor(room.data(), DType::f32, Device::cpu, {28})});
  change(ranks);
  try {
    std::vector<std::string> described;
    for (const auto& pieces : ranks) described.push_back(StateFiles(pieces, 1 << 20).described());
    join_state(described);
    return "";
  } catch (const ProgramError& error) {
    return error.what();
  }
}

TEST(CheckpointColumns, GapsAndOverlapsAreNamed) {
  EXPECT_EQ(join_words([](auto&) {}), "");
  EXPECT_THAT(join_words([](auto& ranks) { ranks[1].clear(); }), HasSubstr("m/a: no rank has elements 4 to 8"));
  EXPECT_THAT(join_words([](auto& ranks) { ranks[2].clear(); }), HasSubstr("m/a: no rank has elements 8 to 12"));
  EXPECT_THAT(join_words([](auto& ranks) { ranks[2] = ranks[1]; }),
              HasSubstr("m/a: elements 4 to 8 of rank 2 are another slice's too"));
  EXPECT_THAT(join_words([](auto& ranks) { --ranks[2][0].range.begin; }),
              HasSubstr("m/a: elements 7 to 8 of rank 2 are another slice's too"));
  EXPECT_THAT(join_words([](auto& ranks) {
                ranks[2][0].range.rows = 6;
                ranks[2][0].live = ranks[2][0].live.slice(0, 0, 24);
              }),
              HasSubstr("m/a: no rank has elements 80 to 84"));
  EXPECT_THAT(join_words([](auto& ranks) {
                StateTensor& t = ranks[2][0];
                t.live = t.live.slice(0, 0, 8);
                t.range.pitch = 24;
                t.range.rows = 2;
              }),
              HasSubstr("m/a: rows of rank 0 are 12 elements apart, those of rank 2 24"));
  EXPECT_THAT(join_words([](auto& ranks) { ranks[2][0].range.begin = 9; }), HasSubstr("are not within its 84"));
  // A flat range among rows: the whole last row, which the columns have too.
  EXPECT_THAT(join_words([](auto& ranks) {
                StateTensor row = ranks[0][0];
                row.range = flat_range(72, 84);
                row.live = row.live.slice(0, 0, 12);
                ranks[1].push_back(row);
              }),
              HasSubstr("m/a: elements 72 to 76 of rank 1 are another slice's too"));
}

// The commands that read checkpoints, on one of a real run that is saved again as columns of every matrix.
TEST(CheckpointColumns, AreInspectedAndExportedAsTheWholeIs) {
  const TempFolder folder;
  const std::string run = folder.path() / "run", cut = folder.path() / "cut";
  const tests::Outcome trained =
      tests::run_program({"train", "--out", run, "--set", "model.preset=llama-1m", "--set", "model.vocabulary=257",
                          "--set", "train.steps=1", "--set", "train.global_batch=2", "--set", "optim.warmup=0", "--set",
                          "data.seq=32", "--set", "data.example=true"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  const Checkpoint whole = *open_newest_whole(run + "/checkpoints");
  Host host;
  std::vector<std::vector<float>> rooms;
  std::vector<StateTensor> pieces;
  for (const ManifestTensor& t : whole.manifest().tensors) {
    const LogicalTensor tensor{t.name, t.shape};
    const std::int64_t width = t.shape.back(), half = width / 2;
    for (const std::int64_t begin : {std::int64_t{0}, half}) {
      const std::int64_t row = begin == 0 ? half : width - half, held = tensor.elements() / width * row;
      ASSERT_EQ(t.dtype, DType::f32);
      rooms.emplace_back(static_cast<std::size_t>(held));
      pieces.push_back({.part = t.part,
                        .tensor = tensor,
                        .range = {begin, row, width, tensor.elements() / width},
                        .live = Tensor(rooms.back().data(), t.dtype, Device::cpu, {held})});
    }
  }
  whole.load(pieces, host.stream);
  const fs::path saved = save_checkpoint({.path = cut}, whole.progress(), pieces);
  EXPECT_THAT(bytes_of(saved / kManifestName), HasSubstr("\"version\":2,"));
  const tests::Outcome inspected = tests::run_program({"inspect", saved});
  EXPECT_EQ(inspected.code, 0) << inspected.err;
  EXPECT_THAT(inspected.out, HasSubstr("whole        yes"));
  for (const std::string& from : {run, cut}) {
    const tests::Outcome exported = tests::run_program({"export", from, "--out", from + "-hf"});
    ASSERT_EQ(exported.code, 0) << exported.err;
  }
  EXPECT_TRUE(bytes_of(run + "-hf/model.safetensors") == bytes_of(cut + "-hf/model.safetensors"));
}

// More than is put together on the host at a time, in rows and flat.
TEST(CheckpointColumns, OfALargeMatrixAreJoinedAndLoadedInNoTime) {
  const std::int64_t height = 16384, width = 4096;
  const auto columns = [&](std::vector<bf16>& room, std::int64_t begin, std::int64_t row) {
    room.resize(static_cast<std::size_t>(height * row));
    return StateTensor{.part = "weight",
                       .tensor = {"large", {height, width}},
                       .range = {begin, row, width, height},
                       .live = Tensor(room.data(), DType::bf16, Device::cpu, {height * row})};
  };
  const auto bits_of = [](std::int64_t element) { return static_cast<std::uint16_t>(element * 40503 >> 8); };
  const auto seconds = [](const auto& body) {
    const auto begin = std::chrono::steady_clock::now();
    body();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  std::vector<std::vector<bf16>> rooms(8);
  std::vector<StateTensor> pieces;
  std::vector<std::string> described;
  for (std::int64_t r = 0; r < 8; ++r) {
    std::vector<bf16>& room = rooms[static_cast<std::size_t>(r)];
    pieces.push_back(columns(room, 512 * r, 512));
    for (std::int64_t i = 0; i < height * 512; ++i)
      room[static_cast<std::size_t>(i)].bits = bits_of(i / 512 * width + 512 * r + i % 512);
    described.push_back(StateFiles(std::span(&pieces.back(), 1), 1 << 20).described());
  }
  EXPECT_LT(seconds([&] { join_state(described); }), 0.1 * tests::kSlowdown);
  const TempFolder folder;
  const Checkpoint checkpoint = open_checkpoint(save_checkpoint({.path = folder.path()}, progress_at(1), pieces));
  for (const auto& [begin, row] : {std::pair(100, 900), std::pair(1000, 3096), std::pair(0, 4096)}) {
    std::vector<bf16> loaded;
    const StateTensor want[] = {columns(loaded, begin, row)};
    Host host;
    EXPECT_LT(seconds([&] { checkpoint.load(want, host.stream); }), 1.0 * tests::kSlowdown);
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < height * row; ++i)
      wrong += loaded[static_cast<std::size_t>(i)].bits != bits_of(i / row * width + begin + i % row);
    EXPECT_EQ(wrong, 0) << row;
  }
}

}  // namespace
}  // namespace lockstep
