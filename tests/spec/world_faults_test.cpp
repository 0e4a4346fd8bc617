// Lists of all ranks of a mesh: what the generators make fits together, and what does not is found.
#include "spec/step/world_faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/pipeline/stage_step.h"

namespace lockstep::tests {
namespace {

// A model of two units a chunk and some more, so that chunks differ.
StepShape cut(const PipelineSchedule& schedule, const StepShape& like) {
  StepShape shape = like;
  const int chunks = static_cast<int>(schedule.stage_of.size());
  shape.stages = {.begins = {}, .stage_of = schedule.stage_of};
  for (int k = 0; k < chunks; ++k) shape.stages.begins.push_back(2 * k);
  shape.units = 2 * chunks + 1;
  shape.micro = schedule.shape.micro;
  if (like.tie_owner >= 0) shape.tie_borrower = shape.units - 1;
  return shape;
}

WorldLists world_of(const PipelineSchedule& schedule, const StepShape& like, int dp = 1, int tp = 1, bool ahead = true,
                    int cp = 1) {
  WorldLists world{.shape = cut(schedule, like), .dp = dp, .cp = cp, .tp = tp, .ranks = {}};
  for (int d = 0; d < dp; ++d)
    for (int s = 0; s < schedule.shape.stages; ++s) {
      StepShape shape = world.shape;
      shape.stage = s;
      const std::vector<Action> list = pipeline_step(schedule, shape, ahead);
      for (int t = 0; t < cp * tp; ++t) world.ranks.push_back(list);
    }
  return world;
}

std::vector<StepShape> kinds() {
  return {{},
          {.tie_owner = 0},
          {.tie_owner = 0, .publishes = true},
          {.reduces_each = true},
          {.tie_owner = 0, .reduces_each = true, .gathers = true},
          {.tie_owner = 0, .gathers = true, .kept_units = 1}};
}

// Ranks that cut samples between them compute together, and have the same weights.
TEST(WorldFaults, RanksOfASampleDoTheSame) {
  const PipelineSchedule schedule = make_schedule(ScheduleKind::one_f_one_b, {2, 3, 1});
  int others = 0;
  for (const StepShape& like : kinds()) {
    const WorldLists world = world_of(schedule, like, 2, 2, true, 3);
    ASSERT_EQ(find_world_fault(world), std::nullopt);
    // Two phases of one rank change places where its own list allows it: the others do not come along.
    WorldLists other = world;
    bool changed = false;
    for (std::size_t i = 1; i < other.ranks[5].size() && !changed; ++i) {
      Action &a = other.ranks[5][i - 1], &b = other.ranks[5][i];
      if (!is_phase(a.kind) || !is_phase(b.kind)) continue;
      std::swap(a, b);
      StepShape own = world.shape;
      own.stage = 0;
      changed = !find_fault(other.ranks[5], own);
      if (!changed) std::swap(a, b);
    }
    if (!changed) continue;  // something stands between any two
    EXPECT_NE(find_world_fault(other), std::nullopt);
    ++others;
  }
  EXPECT_GE(others, 3);
}

TEST(WorldFaults, EveryGeneratedListIsAccepted) {
  int seen = 0;
  for (const ScheduleKind kind : kScheduleKinds)
    for (int p = 1; p <= 8; ++p)
      for (int m = 1; m <= 16; ++m)
        for (int v = 1; v <= 4; ++v) {
          const PipelineShape shape{p, m, v};
          bool refused = false;
          check_schedule(kind, shape, [&](auto&&...) { refused = true; });
          if (refused) continue;
          const PipelineSchedule schedule = make_schedule(kind, shape);
          WorldLists world = world_of(schedule, kinds()[static_cast<std::size_t>(seen++) % kinds().size()]);
          for (int s = 0; s < p; ++s) world.most_in_flight.push_back(most_in_flight(kind, shape, s));
          const auto fault = find_world_fault(world);
          ASSERT_EQ(fault, std::nullopt) << name_of(kind) << " pp=" << p << " micro=" << m << " chunks=" << v;
        }
  EXPECT_EQ(seen, 1024);
}

TEST(WorldFaults, EveryKindOfStepFitsOnAMesh) {
  for (const StepShape& like : kinds())
    for (const ScheduleKind kind : kScheduleKinds)
      for (const bool ahead : {true, false}) {
        const PipelineSchedule schedule = make_schedule(kind, {3, 4, usual_chunks(kind)});
        EXPECT_EQ(find_world_fault(world_of(schedule, like, 2, 2, ahead)), std::nullopt) << name_of(kind) << ahead;
      }
}

}  // namespace
}  // namespace lockstep::tests
