// Pieces of a tensor, flat and in rows that lie apart: who holds what, whether all is held once, what two have in
// common.
#include "checkpoint/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "checkpoint/state_share.h"

namespace lockstep {
namespace {

// The same by hand: the elements of a piece, in its own order.
std::vector<std::int64_t> elements_of(const StridedRange& rows) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < rows.rows; ++i)
    for (std::int64_t k = 0; k < rows.row; ++k) all.push_back(rows.begin + i * rows.pitch + k);
  return all;
}

// How often each element is held.
std::vector<int> held(const std::vector<StridedRange>& pieces, std::int64_t elements) {
  std::vector<int> times(static_cast<std::size_t>(elements));
  for (const StridedRange& piece : pieces)
    for (const std::int64_t e : elements_of(piece)) ++times[static_cast<std::size_t>(e)];
  return times;
}

// Some piece of a tensor, flat or in rows of that pitch, which may go over the edge of a row of the tensor.
StridedRange any_piece(std::mt19937& random, std::int64_t elements, std::int64_t pitch) {
  const auto upto = [&](std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(0, most)(random); };
  if (elements > pitch && upto(2) > 0) {
    const std::int64_t row = 1 + upto(std::min(pitch - 2, elements - pitch - 1)), begin = upto(elements - pitch - row);
    const std::int64_t most = (elements - begin - row) / pitch + 1;
    return {.begin = begin, .row = row, .pitch = pitch, .rows = 2 + upto(most - 2)};
  }
  const std::int64_t begin = upto(elements), end = begin + upto(elements - begin);
  return flat_range(begin, end);
}

std::vector<float> room(100000);
StateTensor piece(std::int64_t begin, std::int64_t held, std::int64_t row, std::int64_t pitch) {
  return {.part = "weight",
          .tensor = {"a", {7, 12}},
          .range = row == 0 ? flat_range(begin, begin + held) : StridedRange{begin, row, pitch, held / row},
          .live = Tensor(room.data(), DType::f32, Device::cpu, {held})};
}

TEST(Rows, APieceIsTheRowsItSaysAndFlatWhereItIsFlat) {
  EXPECT_EQ(rows_of(piece(3, 21, 3, 12)), (StridedRange{3, 3, 12, 7}));
  EXPECT_EQ(rows_of(piece(3, 21, 0, 0)), flat_range(3, 24));
  EXPECT_EQ(rows_of(piece(3, 3, 3, 12)), flat_range(3, 6));
  EXPECT_EQ(rows_of(piece(3, 21, 3, 3)), flat_range(3, 24));
  EXPECT_EQ(rows_of(piece(84, 0, 3, 12)).elements(), 0);
  EXPECT_EQ(rows_of(piece(3, 21, 3, 12)).end(), 78);
}

TEST(Rows, APieceThatBreaksItsContractIsAMistakeOfTheCaller) {
  EXPECT_NO_THROW(rows_of(piece(9, 21, 3, 12)));
  for (const StateTensor& bad :
       {piece(10, 21, 3, 12), piece(9, 20, 3, 12), piece(0, 21, 3, 2), piece(0, 24, 3, 12), piece(-1, 21, 3, 12),
        piece(0, 21, -3, 12), piece(0, 21, 3, std::int64_t{1} << 62), piece(64, 21, 0, 0), piece(0, 85, 0, 0)})
    EXPECT_THROW(rows_of(bad), ProgramError) << bad.range.begin << " " << bad.range.row << " " << bad.range.pitch;
}

TEST(Rows, WhatTwoPiecesHaveInCommonIsFoundInRuns) {
  std::mt19937 random(1);
  int several = 0;
  for (int turn = 0; turn < 4000; ++turn) {
    const std::int64_t elements = 1 + static_cast<std::int64_t>(random() % 90);
    const StridedRange a = any_piece(random, elements, 2 + static_cast<std::int64_t>(random() % 11));
    const StridedRange b =
        any_piece(random, elements, 2 + static_cast<std::int64_t>(random() % 11));  // any other pitch
    const std::vector<std::int64_t> of_a = elements_of(a), of_b = elements_of(b);
    std::vector<std::int64_t> common, expected;
    std::set_intersection(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(), std::back_inserter(expected));
    int runs = 0;
    each_common_run(a, b, [&](std::int64_t to, std::int64_t from, std::int64_t count) {
      ASSERT_GT(count, 0);
      ++runs;
      for (std::int64_t k = 0; k < count; ++k) {
        ASSERT_EQ(of_a.at(static_cast<std::size_t>(to + k)), of_b.at(static_cast<std::size_t>(from + k)));
        common.push_back(of_a[static_cast<std::size_t>(to + k)]);
      }
    });
    ASSERT_EQ(common, expected);
    several += runs > 1;
  }
  EXPECT_GT(several, 500);
}

// Covers made by cutting, then spoilt or not: the verdict is that of counting every element, and the place is right.
TEST(Rows, AFaultOfACoverIsFoundExactlyWhenThereIsOne) {
  std::mt19937 random(2);
  int whole = 0, gaps = 0, overlaps = 0;
  for (int turn = 0; turn < 6000; ++turn) {
    const std::int64_t pitch = 2 + static_cast<std::int64_t>(random() % 9);
    const std::int64_t elements = pitch * 2 + static_cast<std::int64_t>(random() % 60);  // the last row may be short
    std::vector<StridedRange> pieces;
    std::vector<int> times(static_cast<std::size_t>(elements));
    for (int tries = 0; tries < 30; ++tries) {  // what fits in beside what is there
      const StridedRange more = any_piece(random, elements, pitch);
      bool fits = true;
      for (const std::int64_t e : elements_of(more)) fits = fits && times[static_cast<std::size_t>(e)] == 0;
      if (!fits) continue;
      pieces.push_back(more);
      times = held(pieces, elements);
    }
    for (std::int64_t at = 0; at < elements;) {  // and flat ranges in between
      std::int64_t end = at;
      while (end < elements && times[static_cast<std::size_t>(end)] == 0) ++end;
      if (end > at) pieces.push_back(flat_range(at, end));
      at = end + 1;
    }
    std::shuffle(pieces.begin(), pieces.end(), random);
    if (const auto kind = random() % 3; kind == 1)
      pieces.erase(pieces.begin());
    else if (kind == 2)
      pieces.push_back(any_piece(random, elements, pitch));
    times = held(pieces, elements);
    const bool good = std::all_of(times.begin(), times.end(), [](int n) { return n == 1; });
    const auto fault = find_cover_fault(pieces, elements);
    ASSERT_EQ(fault.has_value(), !good) << turn;
    whole += good;
    if (good) continue;
    (fault->twice_in ? overlaps : gaps) += 1;
    ASSERT_LT(fault->begin, fault->end);
    ASSERT_LE(fault->end, elements);
    for (std::int64_t e = fault->begin; e < fault->end; ++e) {
      const int n = times[static_cast<std::size_t>(e)];
      ASSERT_TRUE(fault->twice_in ? n > 1 : n == 0) << "element " << e << " is held " << n << " times";
    }
    if (!fault->twice_in) continue;
    const std::vector<std::int64_t> mine = elements_of(pieces.at(*fault->twice_in));
    ASSERT_TRUE(std::find(mine.begin(), mine.end(), fault->begin) != mine.end());
  }
  EXPECT_GT(whole, 1000);
  EXPECT_GT(gaps, 1000);
  EXPECT_GT(overlaps, 1000);
}

TEST(Rows, ACoverCostsWhatItsPiecesCost) {
  std::vector<StridedRange> columns;
  const std::int64_t width = 200000, height = std::int64_t{1} << 40;
  for (std::int64_t i = 0; i < width; ++i) columns.push_back({.begin = i, .row = 1, .pitch = width, .rows = height});
  EXPECT_FALSE(find_cover_fault(columns, width * height));
  std::vector<StridedRange> stairs;  // each column in two, no two at the same height
  for (std::int64_t i = 0; i < width; ++i) {
    stairs.push_back({.begin = i, .row = 1, .pitch = width, .rows = i + 2});
    stairs.push_back({.begin = i + (i + 2) * width, .row = 1, .pitch = width, .rows = height - i - 2});
  }
  EXPECT_FALSE(find_cover_fault(stairs, width * height));
  stairs.back().rows -= 1;
  const auto fault = find_cover_fault(stairs, width * height);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->begin, width * height - 1);
}

TEST(StateShare, CutsRowsThatLieApartBetweenThemAndCoversThemExactly) {
  const LogicalTensor tall{"tall", {120, 64}}, flat{"flat", {5001}};
  std::vector<StateTensor> state;
  std::int64_t at = 0;
  const auto add = [&](const LogicalTensor& tensor, std::int64_t begin, std::int64_t held, std::int64_t row,
                       std::int64_t pitch) {
    state.push_back({.part = "weight",
                     .tensor = tensor,
                     .range = row == 0 ? flat_range(begin, begin + held) : StridedRange{begin, row, pitch, held / row},
                     .live = Tensor(room.data() + at, DType::f32, Device::cpu, {held})});
    at += held;
  };
  add(tall, 32, 120 * 16, 16, 64);
  add(flat, 0, 5001, 0, 0);
  add(tall, 8, 8, 0, 0);            // ZeRO's half a row
  add(tall, 64, 119 * 16, 16, 64);  // of other columns
  for (const int ranks : {1, 2, 3, 5, 16, 200, 500}) {
    std::vector<int> times(static_cast<std::size_t>(at));
    for (int rank = 0; rank < ranks; ++rank) {
      std::int64_t mine = 0;
      for (const StateTensor& t : share_of_state(state, rank, ranks)) {
        const auto place = static_cast<float*>(t.live.raw()) - room.data();
        const StridedRange rows = rows_of(t);
        const auto whole = std::find_if(state.begin(), state.end(), [&](const StateTensor& s) {
          const auto first = static_cast<float*>(s.live.raw()) - room.data();
          return place >= first && place < first + s.live.elements();
        });
        const auto within = place - (static_cast<float*>(whole->live.raw()) - room.data());
        const std::vector<std::int64_t> all = elements_of(rows_of(*whole)), part = elements_of(rows);
        ASSERT_EQ(t.tensor.name, whole->tensor.name);
        ASSERT_TRUE(std::equal(part.begin(), part.end(), all.begin() + within)) << "other elements than the view's";
        if (rows_of(*whole).apart()) {
          EXPECT_EQ(rows.row, 16);
        }
        EXPECT_EQ(t.range, rows) << "a flat piece says it is rows";
        for (std::int64_t i = 0; i < t.live.elements(); ++i) ++times[static_cast<std::size_t>(place + i)];
        mine += t.live.elements();
      }
      EXPECT_LE(std::abs(static_cast<double>(mine) - static_cast<double>(at) / ranks), 256) << rank << " of " << ranks;
    }
    EXPECT_THAT(times, testing::Each(1)) << ranks;
  }
}

}  // namespace
}  // namespace lockstep
