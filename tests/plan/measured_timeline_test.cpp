// What a trace says of a pipeline is what happened, and the ideal beside it what the schedule alone makes wait.
#include "plan/measured_timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

struct Synthetic {
  ScheduleKind kind = ScheduleKind::one_f_one_b;
  PipelineShape shape{4, 8, 1};
  int ranks_a_stage = 1, pieces = 1;
  double start = 0;
  std::vector<std::int64_t> steps = {5};
};

ChunkTimes times_of(int chunk) { return {.forward = 2.0 + chunk, .input = 3, .weight = 1.0 + chunk, .message = 1}; }

PipelineTimeline timeline_of(const Synthetic& s) { return timed(make_schedule(s.kind, s.shape), times_of); }

// What ranks would have written down had they worked as the clock says; the later ranks of a stage are slower.
Trace trace_of(const Synthetic& s) {
  const PipelineSchedule schedule = make_schedule(s.kind, s.shape);
  const PipelineTimeline line = timeline_of(s);
  Trace trace{.layout = "pp=4", .schedule = to_text(schedule), .stage_of = {}, .spans = {}};
  for (int r = 0; r < s.shape.stages * s.ranks_a_stage; ++r) trace.stage_of.push_back(r / s.ranks_a_stage);
  for (const std::int64_t step : s.steps)
    for (std::size_t r = 0; r < trace.stage_of.size(); ++r) {
      const auto& spans = line.stages[static_cast<std::size_t>(trace.stage_of[r])];
      const int rank = static_cast<int>(r);
      for (std::size_t i = 0; i < spans.size(); ++i) {
        const double zero = s.start + 1000.0 * static_cast<double>(step) + 0.25 * (rank % s.ranks_a_stage);
        const double piece = (spans[i].end - spans[i].begin) / s.pieces;
        for (int p = 0; p < s.pieces; ++p)
          trace.spans.push_back({"unit", SpanKind::compute, rank, step, static_cast<int>(i),
                                 zero + spans[i].begin + p * piece, zero + spans[i].begin + (p + 1) * piece});
        trace.spans.push_back({"held", SpanKind::wait, rank, step, static_cast<int>(i), zero, zero + spans[i].begin});
      }
      trace.spans.push_back({"update", SpanKind::compute, rank, step, -1, 1e6, 1e6 + 1});
    }
  std::ranges::shuffle(trace.spans, std::mt19937(7));  // files promise no order
  return trace;
}

void expect_same(const PipelineTimeline& a, const PipelineTimeline& b) {
  ASSERT_EQ(a.stages.size(), b.stages.size());
  for (std::size_t s = 0; s < a.stages.size(); ++s) {
    ASSERT_EQ(a.stages[s].size(), b.stages[s].size());
    for (std::size_t i = 0; i < a.stages[s].size(); ++i) {
      EXPECT_EQ(a.stages[s][i].action, b.stages[s][i].action);
      EXPECT_EQ(a.stages[s][i].begin, b.stages[s][i].begin);
      EXPECT_EQ(a.stages[s][i].end, b.stages[s][i].end);
    }
  }
}

std::string trace_refusal(const Trace& trace, ExitCode code, std::optional<std::int64_t> step = std::nullopt) {
  try {
    measured_timeline(trace, step, "here");
    return "";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("; "));
    return error.what();
  }
}

// An action that took no time begins when the next one does; whichever stands first in the trace, it comes first.
TEST(MeasuredTimeline, TakesActionsThatTookNoTime) {
  const Synthetic s;
  Trace trace = trace_of(s);
  const std::vector<TraceSpan> spans = trace.spans;
  for (TraceSpan span : spans) {
    span.end = span.begin;
    if (span.kind == SpanKind::compute && span.position >= 0) trace.spans.push_back(span);
  }
  expect_same(measured_timeline(trace, std::nullopt, "here").line, timeline_of(s));
}

// Where the last chunk is the head alone, its forward has done the backward, and nothing is written down for that.
TEST(MeasuredTimeline, ABackwardOfTheHeadAloneTakesNoTime) {
  for (const ScheduleKind kind : kScheduleKinds) {
    SCOPED_TRACE(name_of(kind));
    const Synthetic s{.kind = kind, .shape = {4, 8, usual_chunks(kind)}, .steps = {5, 6}};
    const PipelineSchedule schedule = make_schedule(s.kind, s.shape);
    const int head = static_cast<int>(schedule.stage_of.size()) - 1, stage = schedule.stage_of.back();
    const auto& steps = schedule.stages[static_cast<std::size_t>(stage)];
    const auto is_backward = [&](const ChunkAction& a) { return a.chunk == head && a.step != ChunkStep::forward; };
    Trace trace = trace_of(s);
    std::erase_if(trace.spans, [&](const TraceSpan& span) {
      return span.position >= 0 && span.rank == stage && is_backward(steps[static_cast<std::size_t>(span.position)]);
    });
    const MeasuredTimeline m = measured_timeline(trace, std::nullopt, "here");
    EXPECT_EQ(m.step, 6);
    const auto& spans = m.line.stages[static_cast<std::size_t>(stage)];
    ASSERT_EQ(spans.size(), steps.size());
    for (std::size_t i = 0; i < spans.size(); ++i) {
      EXPECT_EQ(spans[i].action, steps[i]);
      EXPECT_EQ(spans[i].end == spans[i].begin, is_backward(steps[i])) << i;
      EXPECT_EQ(m.busy[static_cast<std::size_t>(stage)][i] == 0, is_backward(steps[i])) << i;
      EXPECT_GE(spans[i].begin, i > 0 ? spans[i - 1].end : 0);
    }
    EXPECT_GT(ideal_timeline(m, 0).makespan(), 0);

    // One of them is there: it is no head alone, and the others are missing.
    TraceSpan one = trace.spans.front();
    one.kind = SpanKind::compute, one.rank = stage, one.step = 6;
    one.position = static_cast<int>(std::ranges::find_if(steps, is_backward) - steps.begin());
    one.begin = one.end = 6000;
    trace.spans.push_back(one);
    EXPECT_THAT(trace_refusal(trace, ExitCode::bad_input_file),
                HasSubstr("has no step of training in which every stage did"));
  }
}

TEST(MeasuredTimeline, OfWhatTheClockSaysIsExactlyThat) {
  for (const ScheduleKind kind : kScheduleKinds) {
    SCOPED_TRACE(name_of(kind));
    const Synthetic s{.kind = kind, .shape = {4, 8, usual_chunks(kind)}};
    const PipelineTimeline line = timeline_of(s);
    const MeasuredTimeline m = measured_timeline(trace_of(s), std::nullopt, "here");
    expect_same(m.line, line);
    EXPECT_EQ(m.bubble(), line.bubble());
    for (int stage = 0; stage < 4; ++stage) EXPECT_EQ(m.own_bubble(stage), line.own_bubble(stage));
    expect_same(ideal_timeline(m, 1), line);
    EXPECT_LT(ideal_timeline(m, 0).makespan(), line.makespan());
  }
}

TEST(MeasuredTimeline, IsMergedFromPiecesOnAnyClock) {
  const Synthetic s{.pieces = 4, .start = 1 << 20};
  const MeasuredTimeline m = measured_timeline(trace_of(s), std::nullopt, "here");
  expect_same(m.line, timeline_of(s));  // all times are sums of powers of two
  EXPECT_EQ(m.bubble(), timeline_of(s).bubble());
}

TEST(MeasuredTimeline, CountsGapsWithinStepsAsIdle) {
  Trace trace = trace_of({.pieces = 4});
  const double before = measured_timeline(trace, std::nullopt, "here").bubble();
  for (TraceSpan& span : trace.spans)
    if (span.kind == SpanKind::compute && span.position >= 0) span.end -= (span.end - span.begin) / 2;
  const MeasuredTimeline m = measured_timeline(trace, std::nullopt, "here");
  EXPECT_LT(m.line.bubble(), m.bubble());
  EXPECT_GT(m.bubble(), before + 0.2);
  const PipelineTimeline ideal = ideal_timeline(m, 0);
  const ChunkSpan& first = ideal.stages[0][0];
  EXPECT_EQ(first.end - first.begin, times_of(0).forward / 2);  // busy, not from end to end
}

TEST(MeasuredTimeline, TakesTheLowestRankOfAStageAndTheMedian) {
  const Synthetic s{.ranks_a_stage = 3};
  Trace trace = trace_of(s);
  for (TraceSpan& span : trace.spans)  // one step in eight is an outlier, and the other ranks are anything
    if (span.rank % 3 != 0) span.begin -= 0.125;
  const MeasuredTimeline m = measured_timeline(trace, std::nullopt, "here");
  EXPECT_THAT(m.ranks, ::testing::ElementsAre(0, 3, 6, 9));
  expect_same(m.line, timeline_of(s));
  for (TraceSpan& span : trace.spans)
    if (span.rank == 0 && span.kind == SpanKind::compute && span.position == 0) span.begin -= 100;
  EXPECT_EQ(ideal_timeline(measured_timeline(trace, std::nullopt, "here"), 1).makespan(), timeline_of(s).makespan());
}

TEST(MeasuredTimeline, TakesTheLastStepThatIsComplete) {
  Trace trace = trace_of({.steps = {3, 5, 9, 12}});
  EXPECT_EQ(measured_timeline(trace, std::nullopt, "here").step, 12);
  EXPECT_EQ(measured_timeline(trace, 5, "here").step, 5);
  std::erase_if(trace.spans,
                [](const TraceSpan& span) { return span.step == 12 && span.rank == 2 && span.position == 3; });
  EXPECT_EQ(measured_timeline(trace, std::nullopt, "here").step, 9);
  EXPECT_THAT(trace_refusal(trace, ExitCode::usage, 12), HasSubstr("no complete step 12; it has 3, from 3 to 9"));
  EXPECT_THAT(trace_refusal(trace, ExitCode::usage, 4), HasSubstr("no complete step 4"));
  std::erase_if(trace.spans, [](const TraceSpan& span) { return span.rank == 1 && span.position == 0; });
  EXPECT_THAT(trace_refusal(trace, ExitCode::bad_input_file), HasSubstr("every stage did all of its schedule"));
}

TEST(MeasuredTimeline, RefusesTracesThatContradictThemselves) {
  const Trace good = trace_of({});
  const auto changed = [&](auto&& change) {
    Trace trace = good;
    change(trace);
    return trace_refusal(trace, ExitCode::bad_input_file);
  };
  EXPECT_THAT(changed([](Trace& t) { t.schedule = ""; }), HasSubstr("no schedule of a pipeline; record a run whose"));
  EXPECT_THAT(changed([](Trace& t) { t.schedule = "F0 Q0\n"; }), HasSubstr("here: its schedule:1: 'Q0' is no step"));
  EXPECT_THAT(changed([](Trace& t) { t.schedule = "F0 B0\n"; }), HasSubstr("rank 1 is on stage 1"));
  EXPECT_THAT(changed([](Trace& t) { t.stage_of = {0, 1, 2, 2}; }), HasSubstr("no rank is on stage 3"));
  EXPECT_THAT(changed([](Trace& t) { t.spans[0].position = 99, t.spans[0].kind = SpanKind::compute; }),
              HasSubstr("position 99"));
  EXPECT_THAT(changed([](Trace& t) {
                for (TraceSpan& span : t.spans)
                  if (span.position == 3 && span.kind == SpanKind::compute) span.end += 50;
              }),
              HasSubstr("begins before what comes before it ends"));
  EXPECT_THAT(changed([](Trace& t) {
                t.schedule.clear();
                for (int i = 0; i <= kMostStages; ++i) t.schedule += "F0 B0\n";
              }),
              HasSubstr("more than 1024 stages"));
}

TEST(DrawnSchedule, IsBoundedBeforeItCostsTime) {
  std::string slow;  // each stage waits for the one below it: a pass over all of them for every step
  const int stages = 200'000;
  for (int s = 0; s < stages; ++s) slow += fmt::format("F0@{0} B0@{0}\n", stages - 1 - s);
  EXPECT_THROW(parse_drawn_schedule(slow, "here", ExitCode::usage), UserError);
  const std::string comments(5000, '\n');
  EXPECT_EQ(parse_drawn_schedule("# a\n" + comments + "F0 B0 # b\n", "here", ExitCode::usage).stages.size(), 1u);
  const std::string many = to_text(make_schedule(ScheduleKind::one_f_one_b, {65, 1024, 1}));
  EXPECT_THROW(parse_drawn_schedule(many, "here", ExitCode::usage), UserError);
}

}  // namespace
}  // namespace lockstep::tests
