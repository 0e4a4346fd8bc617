// Schedules of pipelines: they are complete, their stages never wait for each other for ever, and their bubbles and
// activations are those of the theory.
#include "spec/pipeline/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "spec/pipeline/clock.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

template <class Visit>
void each_shape(int stages, int micro, int chunks, Visit&& visit) {
  for (const ScheduleKind kind : kScheduleKinds)
    for (int p = 1; p <= stages; ++p)
      for (int m = 1; m <= micro; ++m)
        for (int v = 1; v <= chunks; ++v) {
          bool refused = false;
          check_schedule(kind, {p, m, v}, [&](auto&&...) { refused = true; });
          if (refused) continue;
          SCOPED_TRACE(fmt::format("{} pp={} micro={} chunks={}", name_of(kind), p, m, v));
          visit(kind, PipelineShape{p, m, v});
        }
}

PipelineTimeline equal_times(const PipelineSchedule& schedule) {
  return timed(schedule, [](int) { return ChunkTimes{}; });
}

TEST(PipelineSchedule, IsCompleteAndNeverWaitsForEver) {
  int seen = 0;
  each_shape(8, 16, 4, [&](ScheduleKind kind, const PipelineShape& shape) {
    EXPECT_EQ(schedule_fault(make_schedule(kind, shape)), "");
    ++seen;
  });
  EXPECT_EQ(seen, 8 * 16 * (1 + 1 + 4 + 1 + 1));
}

TEST(PipelineSchedule, BubblesAreThoseOfTheTheory) {
  each_shape(8, 16, 4, [&](ScheduleKind kind, const PipelineShape& s) {
    const PipelineTimeline line = equal_times(make_schedule(kind, s));
    const double p = s.stages, m = s.micro, v = s.chunks;
    const auto is = [&](double share) { EXPECT_NEAR(line.bubble(), share, 1e-12); };
    switch (kind) {
      case ScheduleKind::afab:
      case ScheduleKind::one_f_one_b:
        return is((p - 1) / (m + p - 1));
      case ScheduleKind::interleaved:
        if (s.micro % s.stages == 0) is((p - 1) / (v * m + p - 1));
        return;
      case ScheduleKind::zb_h1:
        if (s.micro >= s.stages) is((p - 1) / (3 * m + p - 1));
        return;
      case ScheduleKind::zb_v:
        for (int stage = 0; stage < s.stages && s.micro >= 2 * s.stages; ++stage) EXPECT_EQ(line.own_bubble(stage), 0);
        return;
      case ScheduleKind::pipedream:
      case ScheduleKind::pipedream_2bw:
        return;  // tests/spec/pipedream_test.cpp
    }
  });
}

TEST(PipelineSchedule, KeepsNoMoreInFlightThanItSays) {
  each_shape(8, 16, 4, [&](ScheduleKind kind, const PipelineShape& s) {
    const PipelineSchedule schedule = make_schedule(kind, s);
    for (int stage = 0; stage < s.stages; ++stage) {
      const int most = in_flight(schedule.stages[static_cast<std::size_t>(stage)]);
      EXPECT_LE(most, most_in_flight(kind, s, stage)) << stage;
      // Named bounds that nothing reaches would prove little.
      if (s.micro >= 2 * s.stages || kind == ScheduleKind::afab || kind == ScheduleKind::one_f_one_b) {
        EXPECT_EQ(most, most_in_flight(kind, s, stage)) << stage;
      }
    }
  });
}

TEST(PipelineSchedule, MessagesThatTakeTimeLengthenIt) {
  const PipelineSchedule schedule = make_schedule(ScheduleKind::one_f_one_b, {4, 8, 1});
  const double free = equal_times(schedule).makespan();
  const double slow = timed(schedule, [](int) { return ChunkTimes{.message = 0.5}; }).makespan();
  EXPECT_EQ(free, 3 * (8 + 4 - 1));
  EXPECT_GE(slow, free + 2 * 3 * 0.5);  // there and back over three links
}

TEST(PipelineSchedule, ReadsWhatItWrites) {
  each_shape(4, 6, 3, [&](ScheduleKind kind, const PipelineShape& shape) {
    const PipelineSchedule made = make_schedule(kind, shape), read = parse_schedule(to_text(made), "a test");
    EXPECT_EQ(read.shape, made.shape);
    EXPECT_EQ(read.stage_of, made.stage_of);
    EXPECT_EQ(read.stages, made.stages);
  });
}

TEST(PipelineSchedule, RefusesWhatIsNoneNamingThePlace) {
  const auto refused = [](const std::string& text, const std::string& words) {
    try {
      parse_schedule(text, "mine");
      ADD_FAILURE() << text << " was taken";
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), HasSubstr(words)) << text;
      EXPECT_EQ(error.code(), ExitCode::usage);
    }
  };
  refused("", "there is no step");
  refused("F0 Q0\n", "mine:1: 'Q0' is no step");
  refused("F0 B0\nF0 B\n", "mine:2: 'B' is no step");
  refused("F0 B99999999999\n", "is no step");
  refused("F0 B0 F1 B1\nF0 B0 F1\n", "stage 1, I1 is missing");
  refused("F0 F0 B0\n", "stage 0, F0");
  refused("F1 F0 B0 B1\n", "stage 0, F1");                  // out of turn
  refused("F0 F1 W0 I0 B1\n", "waits for ever");            // the weights' half first
  refused("F0 B0 F1 B1\nF0 F1 B0 B1\n", "waits for ever");  // each waits for the other
  refused("F0@0 B0@0\nF0@1 B0@1 F0@0\n", "chunk 0 is a stage's of line 1 already");
  refused("F0@0 B0@0\nF0@2 B0@2\n", "the last of them 2");
  refused("F0@0 B0@0 F0@1 B0@1 F0@2 B0@2\nF0@3 B0@3\n", "as others have");
}

TEST(PipelineSchedule, IsRefusedWithWhatWouldWork) {
  const auto refused = [](ScheduleKind kind, PipelineShape shape, const std::string& remedy) {
    std::string said;
    check_schedule(kind, shape, [&](const std::string&, const std::string& words) { said = words; });
    EXPECT_THAT(said, HasSubstr(remedy));
  };
  refused(ScheduleKind::zb_v, {4, 8, 1}, "chunks = 2");
  refused(ScheduleKind::one_f_one_b, {4, 8, 2}, "interleaved");
  refused(ScheduleKind::interleaved, {4, 8, 2}, "");
}

}  // namespace
}  // namespace lockstep
