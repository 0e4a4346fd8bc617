// Traces of steps that were watched.
#include "train/run_trace.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "comm/threads/run_ranks.h"
#include "support/devices.h"
#include "support/host_run.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

TEST(RunTrace, HasEveryActionOfTheWatchedStepsOfAllRanks) {
  ModelSpec spec = tiny_specs()[0].spec;
  const LayoutSpec layout{.pp = 2, .micro = 3};
  const Replica::Options o{.spec = spec, .B = 3, .T = 4, .layout = layout, .seed = 5};
  std::optional<Trace> trace;
  std::size_t actions = 0;
  std::mutex mutex;
  run_ranks(2, [&](std::unique_ptr<Communicator> ranks) {
    CpuDevice cpu;
    Replica replica(o, {*ranks, *ranks}, cpu.memory(), cpu.stream());
    replica.init_weights();
    RunTrace timeline(replica, {.steps = 2, .layout = layout, .ranks = ranks.get()});
    const TokenBatch batch = random_batch(o, 1);
    for (std::int64_t step = 0; step < 4; ++step) {
      timeline.before(step, step == 0);
      EXPECT_EQ(timeline.watching(), step == 1 || step == 2) << step;
      replica.step(batch.tokens, batch.targets);
      if (!timeline.is_due()) continue;
      auto collected = timeline.collect();
      EXPECT_EQ(collected.has_value(), ranks->rank() == 0);
      if (collected) trace = std::move(collected);
    }
    EXPECT_FALSE(timeline.collect().has_value()) << "a second time";
    replica.settle();
    const std::lock_guard lock(mutex);
    actions += replica.actions().size();
  });
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->schedule, to_text(schedule_of(layout)));
  EXPECT_EQ(trace->stage_of, (std::vector{0, 1}));
  std::map<int, double> end;  // of each rank's spans
  std::size_t computed = 0;
  for (const TraceSpan& span : trace->spans) {
    EXPECT_TRUE(span.step == 2 || span.step == 3) << span.step;
    EXPECT_LE(span.begin, span.end);
    EXPECT_GE(span.begin, end[span.rank]) << "spans of a rank overlap";
    end[span.rank] = span.end;
    computed += span.kind == SpanKind::compute;
  }
  EXPECT_EQ(computed, 2 * actions);
  EXPECT_EQ(trace->steps(), 2u);
  // Units by their names; micro-batches beside them.
  std::map<std::string, std::set<int>> micros;
  for (const TraceSpan& span : trace->spans)
    if (span.kind == SpanKind::compute) micros[span.name].insert(span.micro);
  for (const char* name : {"embedding forward", "block.0 forward", "block.1 backward input", "head backward weight"})
    EXPECT_EQ(micros[name], (std::set<int>{0, 1, 2})) << name;
  for (const char* name : {"norm", "block.1 update"}) EXPECT_EQ(micros[name], (std::set<int>{-1})) << name;
}

// Stands for a stream that runs ahead: the device comes to an event when it is recorded, on a clock of its own.
class MarkedStream final : public Stream {
 public:
  MarkedStream() : Stream(Device::cpu) {}
  struct Point final : Event {
    bool done() override { return true; }
    void wait() override {}
    double at = -1;
  };
  std::unique_ptr<Event> make_event() override { return std::make_unique<Point>(); }
  double seconds_between(Event& first, Event& second) override {
    return static_cast<Point&>(second).at - static_cast<Point&>(first).at;
  }
  void record(Event& event) override { static_cast<Point&>(event).at = steady_now() - 12345; }
  void wait(Event&) override {}
  void synchronize() override { ++synchronized; }
  bool runs_ahead() const override { return true; }
  int synchronized = 0;
};

// A device's times are read from events when the steps are done, and are the host's to the anchor's error.
TEST(RunTrace, OfAStreamThatRunsAheadIsReadFromItsEvents) {
  ModelSpec spec = tiny_specs()[0].spec;
  const Replica::Options o{.spec = spec, .B = 3, .T = 4, .layout = {.micro = 3}, .seed = 5};
  CpuDevice cpu;
  Replica replica(o, cpu.memory(), cpu.stream());
  replica.init_weights();
  MarkedStream stream;
  RunTrace timeline(replica, {.steps = 2, .layout = o.layout, .stream = &stream});
  const TokenBatch batch = random_batch(o, 1);
  std::vector<std::pair<double, double>> steps;  // on the host
  for (std::int64_t step = 0; step < 3; ++step) {
    const double begin = steady_now();
    timeline.before(step, step == 0);
    replica.step(batch.tokens, batch.targets);
    steps.emplace_back(begin, steady_now());
  }
  EXPECT_EQ(stream.synchronized, 1) << "once, before the first";
  const std::optional<Trace> trace = timeline.collect();
  EXPECT_EQ(stream.synchronized, 2) << "and when they are done";
  ASSERT_TRUE(trace);
  std::size_t computed = 0;
  double end = 0;
  for (const TraceSpan& span : trace->spans) {
    const auto& [from, to] = steps.at(static_cast<std::size_t>(span.step - 1));
    EXPECT_GE(span.begin, from - 1e-3);
    EXPECT_LE(span.end, to + 1e-3);
    EXPECT_GE(span.begin, end) << "spans of a rank overlap";
    end = span.end;
    computed += span.kind == SpanKind::compute;
  }
  EXPECT_EQ(computed, 2 * replica.actions().size());
}

}  // namespace
}  // namespace lockstep::tests
