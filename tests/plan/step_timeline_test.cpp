// Timelines of a stated machine: what the step's own list says, in times that can be worked out.
#include "plan/step_timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "spec/layout/layout_toml.h"
#include "spec/model/presets.h"
#include "train/run_data.h"

namespace lockstep::tests {
namespace {

RunSpec preset_run(const char* layout) {
  RunSpec spec;
  spec.model = *preset("llama-1m");
  spec.data.synthetic = SyntheticSpec{};
  spec.data.seq = 64;
  spec.train.global_batch = 8;
  spec.layout = parse_layout(layout);
  return spec;
}

StepScript script_of(const RunSpec& spec) {
  const RunData data(spec);
  return step_script(spec, data);
}

constexpr StatedMachine kMachine{.rates = {.flops = 1e12, .bytes = 1e12}, .link = 1e10, .latency = 1e-6};

TEST(StepTimeline, ShowsEveryPhaseOfEveryRankInOrder) {
  using Kind = TimelineSpan::Kind;
  const RunSpec spec = preset_run("dp=2,pp=2,cp=2,tp=2,micro=2");
  const StepScript script = script_of(spec);
  const std::vector<TimelineRow> rows = step_timeline(script, spec.layout, kMachine);
  ASSERT_EQ(rows.size(), 16u);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::map<std::string, double> seen;  // by action: its first begin
    double until = 0;
    std::map<Kind, int> kinds;
    for (const TimelineSpan& span : rows[r].spans) {
      EXPECT_LE(span.begin, span.end);
      ++kinds[span.kind];
      if (is_message(span.kind)) continue;
      EXPECT_GE(span.begin, until) << "a rank computes one thing at a time";
      until = span.end;
      seen.try_emplace(span.tip, span.begin);
    }
    for (const Kind axis : {Kind::tp, Kind::cp, Kind::pp, Kind::dp}) EXPECT_GT(kinds[axis], 0) << r;
    for (const Action& action : script.ranks[r].step.actions)
      EXPECT_TRUE(action.kind != ActionKind::forward || seen.contains(to_string(action))) << to_string(action);
  }
}

TEST(StepTimeline, OverlapHidesMessagesAndChangesNoneOfThem) {
  std::map<std::string, MessageTime> time;
  for (const char* overlap : {"on", "off"}) {
    const RunSpec spec = preset_run(overlap == std::string("on") ? "dp=4,bucket=1" : "dp=4,bucket=1,overlap=off");
    time[overlap] = message_time(step_timeline(script_of(spec), spec.layout, kMachine)[0]);
  }
  EXPECT_NEAR(time["on"].all, time["off"].all, 1e-9);
  EXPECT_NEAR(time["off"].exposed, time["off"].all, 1e-9);
  EXPECT_LT(time["on"].exposed, time["off"].exposed);
}

// Two ranks, by hand: rank 1 computes for longer, both start a message of 3 s, and rank 0 computes while it moves.
TEST(StepTimeline, AMessageBeginsWithItsLastRankAndMovesBesideComputing) {
  const auto work = [](double seconds) {
    const auto flops = static_cast<std::int64_t>(seconds * 1000);
    return ScriptPiece{.kind = ScriptPiece::Kind::work, .action = 0, .work = {.flops = flops, .matmul_flops = flops}};
  };
  const ScriptPiece begins{.kind = ScriptPiece::Kind::step_begins},
      start{.kind = ScriptPiece::Kind::start, .message = 0}, wait{.kind = ScriptPiece::Kind::wait, .message = 0};
  StepScript script;
  script.messages = {{.op = CommOp::all_reduce, .ranks = 2, .channel = 0, .group = "world", .sent = 200}};
  for (const double first : {1.0, 2.0}) {
    RankScript& rank = script.ranks.emplace_back();
    rank.step.actions = {{ActionKind::forward, 0, 0}};
    rank.pieces = {begins, work(first), start, work(first == 1 ? 2 : 0.5), wait, work(1)};
  }
  const LayoutSpec layout{.dp = 2};
  const auto rows = step_timeline(script, layout, {.rates = {.flops = 1000, .bytes = 1e12}, .link = 100, .latency = 1});
  ASSERT_EQ(rows.size(), 2u);
  for (const TimelineRow& row : rows) {
    const auto message = std::ranges::find(row.spans, TimelineSpan::Kind::dp, &TimelineSpan::kind);
    ASSERT_NE(message, row.spans.end());
    EXPECT_DOUBLE_EQ(message->begin, 2);  // when rank 1 starts it
    EXPECT_DOUBLE_EQ(message->end, 5);    // 1 s of latency and 200 bytes at 100 a second
    double last = 0;
    for (const TimelineSpan& span : row.spans) last = std::max(last, span.end);
    EXPECT_DOUBLE_EQ(last, 6);  // both waited until 5
  }
  EXPECT_DOUBLE_EQ(message_time(rows[0]).exposed, 2);    // it computed from 2 to 3
  EXPECT_DOUBLE_EQ(message_time(rows[1]).exposed, 2.5);  // and this one from 2 to 2.5
}

}  // namespace
}  // namespace lockstep::tests
