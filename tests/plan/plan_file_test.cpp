// plan.json has the numbers of each rank: of its stage, and without the text that rank 0 holds for all.
#include "plan/plan_file.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "spec/layout/layout_toml.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

TEST(PlanFile, HasEachRanksStageAndOneText) {
  RunSpec run;
  run.model = tiny_specs()[1].spec;
  run.data.synthetic = SyntheticSpec{.vocabulary = run.model.vocabulary, .order = 1};
  run.data.seq = 8;
  run.train.global_batch = 4;
  run.run.threads = 1;
  run.layout = parse_layout("dp=2,pp=2,micro=2");
  std::vector<Plan> stages = plan_stages(run);
  ASSERT_EQ(stages.size(), 2u);
  ASSERT_NE(stages[0].peak, stages[1].peak);
  constexpr std::int64_t kText = 1000;
  for (Plan& plan : stages) {  // as of a run whose data is a text
    plan.peak += kText;
    plan.peaks[static_cast<std::size_t>(Tag::data)] += kText;
  }
  const PipelineSchedule schedule = make_schedule(run.layout.schedule, {2, 2, 1});
  const auto plan = nlohmann::json::parse(plan_json({.spec = run,
                                                     .stages = stages,
                                                     .schedule = schedule,
                                                     .peak_flops = std::nullopt,
                                                     .peak_source = "",
                                                     .link = std::nullopt,
                                                     .shared_corpus = kText}));
  ASSERT_EQ(plan["memory"].size(), 4u);
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    const Plan& stage = stages[static_cast<std::size_t>(run.layout.stage(rank))];
    const auto& memory = plan["memory"][static_cast<std::size_t>(rank)];
    const std::int64_t not_here = rank == 0 ? 0 : kText;
    EXPECT_EQ(memory["rank"], rank);
    EXPECT_EQ(memory["peak"], stage.peak - not_here) << rank;
    EXPECT_EQ(memory["bytes"][std::string(name_of(Tag::data))], stage.peak_of(Tag::data) - not_here) << rank;
  }
  // The last stage computes last of all forwards, the first one the first.
  double first_of_stage[2] = {2, 2};
  for (const auto& span : plan["ideal"]["spans"]) {
    const std::int64_t stage = run.layout.stage(span["rank"].get<std::int64_t>());
    first_of_stage[stage] = std::min(first_of_stage[stage], span["begin"].get<double>());
  }
  EXPECT_EQ(first_of_stage[0], 0);
  EXPECT_GT(first_of_stage[1], 0);
  EXPECT_LT(first_of_stage[1], 1);
}

}  // namespace
}  // namespace lockstep::tests
