// The map of a unit's flat buffers says of every place what the unit's layout says, also where layers are split.
#include "optim/rounding_map.h"

#include <gtest/gtest.h>

#include <map>

namespace lockstep::tests {
namespace {

// What is at each place, from the layout's runs one by one.
std::map<std::int64_t, std::pair<std::uint64_t, std::int64_t>> elements_by_place(const UnitLayout& layout) {
  std::map<std::int64_t, std::pair<std::uint64_t, std::int64_t>> all;
  for (std::size_t p = 0; p < layout.parameters().size(); ++p) {
    const StoredParameter& parameter = layout.parameters()[p];
    for (std::size_t i = 0; !parameter.tied && i < parameter.pieces.size(); ++i)
      for (const lockstep::Run& run : parameter.runs_of(i))
        for (std::int64_t e = 0; e < run.elements(); ++e)
          all[layout.offset(static_cast<int>(p)) + run.here.at(e)] = {
              random_key(0, "rounding/" + parameter.pieces[i].name), run.there.at(e)};
  }
  return all;
}

void expect_mapped(const UnitLayout& layout) {
  const auto want = elements_by_place(layout);
  const std::vector<RoundingRun> runs = rounding_map(layout);
  int at = 0;
  for (std::int64_t place = 0; place < layout.owned(); ++place) {
    const RoundedElement e = rounded_element(runs.data(), static_cast<int>(runs.size()), at, place);
    const auto found = want.find(place);
    ASSERT_EQ(e.key, found == want.end() ? 0 : found->second.first) << place;
    ASSERT_EQ(e.element, found == want.end() ? place : found->second.second) << place;
  }
}

TEST(RoundingMap, IsThatOfWholeAndFusedTensors) {
  UnitLayout layout("unit");
  layout.add({.shape = {300}, .pieces = {{{"c", {300}}}}});
  layout.add({.shape = {5, 101}, .pieces = {{{"a", {3, 101}}}, {{"b", {2, 101}}}}});
  layout.add({.shape = {40}, .tied = true});
  expect_mapped(layout);
}

TEST(RoundingMap, IsThatOfRowsAndColumns) {
  UnitLayout layout("unit");
  // Rows 4 to 7 of 9, in room for four; columns 6 to 10 of 16, in room for six.
  layout.add({.shape = {4, 10}, .pieces = {{{"rows", {9, 10}}, {{lockstep::Run::flat(0, 40, 30)}}}}});
  layout.add({.shape = {7, 6},
              .pieces = {{{"columns", {7, 16}}, {{lockstep::Run{.here = {0, 5, 6, 7}, .there = {6, 5, 16, 7}}}}}}});
  expect_mapped(layout);
}

// GPT-2's fused query, key and value weights are (in, out): a rank's columns of the three alternate.
TEST(RoundingMap, IsThatOfColumnsThatAlternate) {
  UnitLayout layout("unit");
  std::vector<lockstep::Run> runs;
  for (const std::int64_t part : {0, 1, 2})
    runs.push_back({.here = {4 * part, 4, 13, 5}, .there = {12 * part + 8, 4, 36, 5}});
  layout.add({.shape = {5, 13}, .pieces = {{{"fused", {5, 36}}, runs}}});
  layout.add(
      {.shape = {11}, .pieces = {{{"bias", {36}}, {{lockstep::Run::flat(0, 8, 4), lockstep::Run::flat(4, 20, 4)}}}}});
  expect_mapped(layout);
  // A rank that has nothing of the first begins in the middle of a row.
  runs.erase(runs.begin());
  UnitLayout without("unit");
  without.add({.shape = {5, 13}, .pieces = {{{"fused", {5, 36}}, runs}}});
  expect_mapped(without);
}

}  // namespace
}  // namespace lockstep::tests
