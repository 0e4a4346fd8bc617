// Weights that are not finite are found, named, and not saved.
#include "checkpoint/finite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "checkpoint/fake_state.h"
#include "checkpoint/try_save.h"
#include "comm/threads/run_ranks.h"

namespace lockstep {
namespace {

using namespace checkpoint_tests;
using testing::HasSubstr;

template <class T>
class NotFiniteOf : public testing::Test {};
using Floats = testing::Types<double, float, bf16, f16>;
TYPED_TEST_SUITE(NotFiniteOf, Floats);

TYPED_TEST(NotFiniteOf, AnyElementOfAnySizeIsFound) {
  using T = TypeParam;
  for (const std::int64_t count : {1, 7, 4096, 4097, 9000}) {
    std::vector<T> values(static_cast<std::size_t>(count), T(3.0f));
    const ConstTensor tensor(values.data(), dtype_of<T>, Device::cpu, {count});
    EXPECT_FALSE(first_not_finite(tensor));
    for (const std::int64_t at : {std::int64_t{0}, count / 2, count - 1}) {
      for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                              std::numeric_limits<float>::quiet_NaN()}) {
        values[static_cast<std::size_t>(at)] = T(bad);
        const auto found = first_not_finite(tensor);
        ASSERT_TRUE(found);
        EXPECT_EQ(found->element, at);
        EXPECT_FALSE(std::isfinite(found->value));
      }
      values[static_cast<std::size_t>(at)] = T(-2.0f);
    }
  }
}

TEST(NotFinite, TheLargestNumbersAreNumbers) {
  std::vector<float> values{std::numeric_limits<float>::max(), -std::numeric_limits<float>::max(),
                            std::numeric_limits<float>::denorm_min(), 0.0f, -0.0f};
  EXPECT_FALSE(first_not_finite(ConstTensor(values.data(), DType::f32, Device::cpu, {5})));
}

TEST(NotFinite, AWeightIsNamedByItsPlaceInTheWholeTensor) {
  std::vector<float> values(12, 1.0f);
  const auto said = [&](const StateTensor& piece) -> std::string {
    try {
      require_finite_weights(std::vector{piece});
    } catch (const StateRefused& error) {
      return error.what();
    }
    return "";
  };
  const LogicalTensor whole{"w", {10, 10}};
  values[5] = std::nanf("");
  EXPECT_THAT(said({"weight", whole, flat_range(20, 32), Tensor(values.data(), DType::f32, Device::cpu, {12})}),
              HasSubstr("the weight w is not finite (element 25 is "));
  // Four rows of three, of ten.
  EXPECT_THAT(said({"weight", whole, {2, 3, 10, 4}, Tensor(values.data(), DType::f32, Device::cpu, {4, 3})}),
              HasSubstr("(element 14 is "));
  // Rows that lie apart here too: between them is nobody's business.
  std::swap(values[5], values[6]);
  EXPECT_EQ(said({"weight",
                  whole,
                  {2, 2, 10, 3},
                  Tensor(values.data(), DType::f32, Device::cpu, {12}).rows_apart(0, 3, 2, 4)}),
            "");
  std::swap(values[6], values[9]);
  EXPECT_THAT(said({"weight",
                    whole,
                    {2, 2, 10, 3},
                    Tensor(values.data(), DType::f32, Device::cpu, {12}).rows_apart(0, 3, 2, 4)}),
              HasSubstr("(element 23 is "));
  EXPECT_EQ(said({"v", whole, flat_range(20, 32), Tensor(values.data(), DType::f32, Device::cpu, {12})}), "");
}

// On whichever rank it is: all refuse, nothing is written, and what was there stays.
TEST(NotFinite, AStateThatHoldsOneIsRefusedByAllRanks) {
  const TempFolder folder;
  const LogicalTensor whole{"w", {30}};
  const auto save_with = [&](int bad_rank, std::int64_t step) {
    std::vector<SaveResult> results(3);
    run_ranks(3, [&](std::unique_ptr<Communicator> ranks) {
      std::vector<float> values(10, 1.0f);
      if (ranks->rank() == bad_rank) values[4] = std::numeric_limits<float>::infinity();
      const std::vector<StateTensor> mine{{"weight", whole, flat_range(ranks->rank() * 10, ranks->rank() * 10 + 10),
                                           Tensor(values.data(), DType::f32, Device::cpu, {10})}};
      results[static_cast<std::size_t>(ranks->rank())] = try_save(
          {.path = folder.path(), .keep = 1, .finite_weights = true}, progress_at(step), mine, Disk(), ranks.get());
    });
    return results;
  };
  for (const SaveResult& r : save_with(-1, 1)) EXPECT_EQ(r.outcome, SaveOutcome::saved);
  const auto before = everything_in(folder.path());
  for (int bad = 0; bad < 3; ++bad)
    for (const SaveResult& r : save_with(bad, 2)) {
      EXPECT_EQ(r.outcome, SaveOutcome::refused);
      EXPECT_THAT(r.words, HasSubstr(fmt::format("the weight w is not finite (element {} is inf)", bad * 10 + 4)));
    }
  EXPECT_TRUE(everything_in(folder.path()) == before);
}

}  // namespace
}  // namespace lockstep
