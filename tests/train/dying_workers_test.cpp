// Asynchronous parameter servers whose workers die and join, against the serial model of the order that they applied
// (async_steps_test.cpp): every ticket once, whoever computed it in the end, and nothing of a gradient that came in
// part.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "support/dying_workers.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void expect_each_ticket_once(const std::vector<Arrival>& arrivals, std::int64_t updates, const std::string& what) {
  ASSERT_EQ(std::ssize(arrivals), updates) << what;
  std::set<std::int64_t> tickets;
  for (std::int64_t i = 0; i < updates; ++i) {
    const Arrival& one = arrivals[static_cast<std::size_t>(i)];
    EXPECT_EQ(one.update, i) << what;
    EXPECT_LE(one.version, i) << what;
    tickets.insert(one.ticket);
  }
  EXPECT_EQ(std::ssize(tickets), updates) << what;
  EXPECT_EQ(*tickets.rbegin(), updates - 1) << what;
}

struct Case {
  std::string name;
  LayoutSpec layout;
  std::int64_t bound = kNoStalenessBound;
  bool meets = false;
  std::int64_t steps = 24;
  int longest_life = 150;
};

LayoutSpec layout_of(std::int64_t dp, std::int64_t pp, std::int64_t tp, std::int64_t rows, std::int64_t micro) {
  LayoutSpec layout{.dp = dp, .pp = pp, .tp = tp, .micro = micro, .dp_kind = DpKind::server};
  layout.servers = layout.line() * rows;
  return layout;
}

// Whose heads tp divides.
ModelSpec spec_for(const LayoutSpec& layout) {
  for (const NamedSpec& model : layout.tp > 1 ? cut_specs() : tiny_specs())
    if (heads_divide(model.spec.heads, model.spec.kv_heads, layout.tp)) return model.spec;
  return {};
}

class DyingWorkers : public ::testing::TestWithParam<Case> {};

TEST_P(DyingWorkers, LearnWhatTheSerialModelDoesInTheirOrder) {
  const Replica::Options o = async_options(spec_for(GetParam().layout), GetParam().layout, GetParam().bound);
  DyingTraining how{
      .training = {.steps = GetParam().steps}, .deaths = 12, .longest_life = GetParam().longest_life, .seed = 3};
  if (GetParam().meets) how.training.meets = [](std::int64_t steps) { return steps % 3 == 0; };
  const DyingLearned many = train_with_deaths(o, how);
  ASSERT_EQ(many.failure, "");
  const std::string& what = GetParam().name;
  expect_each_ticket_once(many.learned.arrivals, how.training.steps * o.layout.dp, what);
  if (o.sync.staleness >= 0) {
    EXPECT_LE(staleness_of(many.learned.arrivals).most, o.sync.staleness);
  }
  expect_close(many.learned, simulate_async(o, how.training, many.learned.arrivals), 1e-11, what);
  int again = 0;
  for (const WorkerChange& change : many.changes) again += !change.joins && change.ticket.has_value();
  EXPECT_GE(again, 1) << what << ": tickets were dealt again";
  EXPECT_GE(many.deaths, 3) << what;
}

INSTANTIATE_TEST_SUITE_P(Layouts, DyingWorkers,
                         ::testing::Values(Case{"Plain", layout_of(3, 1, 1, 1, 1)},
                                           Case{"SeveralServers", layout_of(3, 1, 1, 2, 2)},
                                           Case{"Bounded", layout_of(4, 1, 1, 1, 1), 2},
                                           Case{"Meetings", layout_of(3, 1, 1, 2, 1), -1, true},
                                           Case{"Pipelines", layout_of(2, 2, 1, 1, 2), -1, false, 60},
                                           Case{"Tensors", layout_of(2, 1, 2, 2, 1), -1, false, 40, 200}),
                         [](const auto& info) { return info.param.name; });

// The record has all that is needed to repeat such a run, without a death.
TEST(DyingWorkersRecord, IsRepeatedToTheBit) {
  Replica::Options o = async_options(tiny_specs()[0].spec, layout_of(3, 1, 1, 1, 1), kNoStalenessBound);
  o.precision = Precision::fp32;
  const DyingLearned many = train_with_deaths(o, {.training = {.steps = 12}, .deaths = 8, .seed = 5});
  ASSERT_EQ(many.failure, "");
  expect_same_bits(train_async(o, {.steps = 12, .record = many.learned.arrivals}), many.learned, "repeated");
}

// Shares of an evaluation are dealt again too; its loss is that of one rank with the same weights.
TEST(DyingWorkersEvaluation, IsThatOfOneRank) {
  const Replica::Options o = async_options(tiny_specs()[0].spec, layout_of(3, 1, 1, 2, 1), kNoStalenessBound);
  const DyingLearned many = train_with_deaths(o, {.training = {.steps = 4}, .deaths = 8, .seed = 7, .evaluations = 6});
  ASSERT_EQ(many.failure, "");
  ASSERT_EQ(many.evaluations.size(), 6u);
  for (std::int64_t batch = 0; batch < 6; ++batch) {
    const double alone = evaluation_of(o, many.learned.weights, batch);
    EXPECT_NEAR(many.evaluations[static_cast<std::size_t>(batch)], alone, 1e-11 * alone) << batch;
  }
}

// Samples that kill whoever computes on them end the run with their names.
TEST(DyingWorkersDiagnosis, NamesTheTicketThatKills) {
  const Replica::Options o = async_options(tiny_specs()[0].spec, layout_of(3, 1, 1, 1, 1), kNoStalenessBound);
  const DyingLearned many = train_with_deaths(o, {.training = {.steps = 8}, .deaths = 0, .poison = 7});
  EXPECT_THAT(many.failure,
              AllOf(HasSubstr("4 workers in a row were lost at ticket 7"), HasSubstr("samples 14 to 15")));
}

}  // namespace
}  // namespace lockstep::tests
