// Events of all ranks on the run's clock, and when clocks are compared.
#include "train/run_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <thread>

#include "base/error.h"
#include "comm/threads/run_ranks.h"
#include "spec/layout/layout_toml.h"
#include "support/program.h"
#include "support/tiny_specs.h"
#include "support/traced_run.h"
#include "train/run_folder.h"

namespace lockstep::tests {
namespace {

RunSpec run_with_events(const char* layout, std::int64_t steps) {
  RunSpec run;
  run.model = tiny_specs()[1].spec;
  run.data.synthetic = SyntheticSpec{.vocabulary = run.model.vocabulary, .order = 1};
  run.data.seq = 8;
  run.train = {.steps = steps, .global_batch = 4, .eval_every = 0, .save_every = 0, .save_last = false};
  run.run.threads = 1;
  run.layout = parse_layout(layout);
  return run;
}

using KindsOfRank = std::map<int, std::map<EventKind, std::vector<LoggedEvent>>>;
KindsOfRank sorted_events(const std::vector<LoggedEvent>& events) {
  KindsOfRank all;
  for (const LoggedEvent& event : events) all[event.rank][event.kind].push_back(event);
  return all;
}

std::vector<std::string> reasons_to_compare(const std::vector<LoggedEvent>& events) {
  std::vector<std::string> reasons;
  for (const LoggedEvent& event : events)
    if (event.kind == EventKind::clock && event.rank == 0)
      reasons.push_back(event.text.substr(0, event.text.find(':')));
  return reasons;
}

TEST(RunEvents, OfEveryRankComeToRankZeroOnOneClock) {
  for (const char* layout : {"dp=1", "dp=3,uneven=on", "dp=2,pp=2,micro=2"}) {
    const TemporaryFolder folder;
    RunSpec spec = run_with_events(layout, 6);
    spec.train.eval_every = 3;
    spec.train.eval_batches = 1;
    spec.data.eval_share = 0.2;
    spec.train.save_every = 4;
    spec.train.save_last = true;
    spec.run.out = folder.path().string();
    const double begin = seconds_since_1970();
    const std::vector<HeardRun> heard = heard_of(spec);
    const double end = seconds_since_1970();
    for (std::size_t other = 1; other < heard.size(); ++other) EXPECT_TRUE(heard[other].events.empty());
    const KindsOfRank all = sorted_events(heard[0].events);
    EXPECT_EQ(all.size(), heard.size()) << layout;
    for (const auto& [rank, kinds] : all) {
      const auto steps_of = [&](EventKind kind) {
        std::vector<std::int64_t> steps;
        if (kinds.contains(kind))
          for (const LoggedEvent& event : kinds.at(kind)) steps.push_back(event.step);
        return steps;
      };
      const std::string what = fmt::format("{}, rank {}", layout, rank);
      EXPECT_EQ(steps_of(EventKind::start), (std::vector<std::int64_t>{0})) << what;
      EXPECT_EQ(steps_of(EventKind::step), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6})) << what;
      EXPECT_EQ(steps_of(EventKind::evaluation), (std::vector<std::int64_t>{3, 6})) << what;
      EXPECT_EQ(steps_of(EventKind::save), (std::vector<std::int64_t>{4, 6})) << what;
      EXPECT_EQ(steps_of(EventKind::saved), (std::vector<std::int64_t>{4, 6})) << what;
      EXPECT_EQ(steps_of(EventKind::end), (std::vector<std::int64_t>{6})) << what;
      EXPECT_TRUE(steps_of(EventKind::fault).empty() && steps_of(EventKind::clock).empty()) << what;
      double last = begin - 1e-3;
      for (const LoggedEvent& step : kinds.at(EventKind::step)) {
        EXPECT_GE(step.time, last) << what;
        EXPECT_GT(*step.seconds, 0) << what;
        last = step.time;
      }
      EXPECT_LE(last, end + 1e-3) << what;
      EXPECT_GE(kinds.at(EventKind::end)[0].time, last) << what;
      for (const auto& [kind, events] : kinds)
        for (const LoggedEvent& event : events) EXPECT_EQ(event.error, 0) << what << ": threads read one clock";
    }
    EXPECT_EQ(all.at(0).at(EventKind::end)[0].text, "finished");
  }
}

// Sleeps in one message of one step, as a rank that is stopped for a moment.
class SleepyRank final : public Communicator {
 public:
  SleepyRank(std::unique_ptr<Communicator> inner, std::shared_ptr<int> messages, int sleeps_at)
      : Communicator(inner->rank(), inner->size(), inner->name(), inner->device()),
        inner_(std::move(inner)),
        messages_(std::move(messages)),
        sleeps_at_(sleeps_at) {}
  Started start(const Message& message) override {
    if (++*messages_ == sleeps_at_) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    return inner_->start(message);
  }
  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override {
    auto part = inner_->split(place, name);
    return part ? std::make_unique<SleepyRank>(std::move(part), messages_, sleeps_at_) : nullptr;
  }

 private:
  std::unique_ptr<Communicator> inner_;
  std::shared_ptr<int> messages_;
  int sleeps_at_;
};

TEST(RunEvents, NameAStallAndTheRankThatWasBusy) {
  RunSpec spec = run_with_events("dp=2", 30);
  spec.run.clock = ClockScope::global;
  spec.run.clock_error = 10;
  std::vector<HeardRun> heard;
  // In the middle of the run: by the number of its messages.
  auto counted = std::make_shared<int>(0);
  heard_of(spec, [&](std::unique_ptr<Communicator> comm) -> std::unique_ptr<Communicator> {
    if (comm->rank() == 0) return comm;
    return std::make_unique<SleepyRank>(std::move(comm), counted, -1);
  });
  heard = heard_of(spec, [&](std::unique_ptr<Communicator> comm) -> std::unique_ptr<Communicator> {
    if (comm->rank() == 0) return comm;
    return std::make_unique<SleepyRank>(std::move(comm), std::make_shared<int>(0), *counted * 2 / 3);
  });
  const KindsOfRank all = sorted_events(heard[0].events);
  ASSERT_TRUE(all.contains(1) && all.at(1).contains(EventKind::stall));
  const LoggedEvent& stall = all.at(1).at(EventKind::stall).front();
  EXPECT_GE(*stall.seconds, 1.4);
  EXPECT_GT(stall.step, 10);
  EXPECT_LE(stall.step, 30);
  EXPECT_THAT(stall.text, testing::HasSubstr("rank 1 was busy longest"));
  for (const LoggedEvent& step : all.at(1).at(EventKind::step)) {
    if (step.step != stall.step) continue;
    EXPECT_NEAR(stall.time + *stall.seconds, step.time, 0.7) << "it ends with the step";
  }
  const std::vector<std::string> reasons = reasons_to_compare(heard[0].events);
  EXPECT_EQ(reasons.front(), "start");
  EXPECT_THAT(reasons, testing::Contains("a stall"));
}

// At the start, before a trace and after stalls, which a loaded machine may have; never otherwise.
TEST(RunEvents, CompareClocksWhenThereIsAReasonAndNeverOtherwise) {
  const TemporaryFolder folder;
  RunSpec spec = run_with_events("dp=3,uneven=on", 12);
  spec.run.clock = ClockScope::global;
  spec.run.clock_error = 10;
  spec.run.trace = 2;
  spec.run.out = folder.path().string();
  const std::vector<HeardRun> heard = heard_of(spec);
  std::vector<std::string> reasons = reasons_to_compare(heard[0].events);
  std::erase(reasons, "a stall");
  EXPECT_EQ(reasons, (std::vector<std::string>{"start", "a trace"}));
  for (const LoggedEvent& event : heard[0].events) {
    ASSERT_TRUE(event.error);
    EXPECT_GT(*event.error, 0);
    EXPECT_LT(*event.error, 10);
  }
  const KindsOfRank all = sorted_events(heard[0].events);
  EXPECT_NE(all.at(1).at(EventKind::step)[5].error, all.at(2).at(EventKind::step)[5].error)
      << "each has the error of its own clock";
}

// More than a rank can tell at once: it tells the rest later.
TEST(RunEvents, AreAllToldWhereThereAreMoreThanFit) {
  const RunSpec spec = run_with_events("dp=2", 1);
  run_ranks(2, [&](std::unique_ptr<Communicator> comm) {
    TrainingRun run(spec, Device::cpu, "", {.ranks = comm.get()});
    HeardRun heard;
    RunEvents events(run, heard, 0);
    for (std::int64_t step = 1; step <= 7; ++step) events.add({.kind = EventKind::saved, .step = step});
    std::vector<std::int64_t> told;
    for (int i = 0; i < 4; ++i)
      for (const RankEvent& event : events.tell().events)
        if (event.kind) told.push_back(event.step);
    const std::vector<std::int64_t> all{0, 1, 2, 3, 4, 5, 6, 7};
    EXPECT_EQ(told, comm->rank() == 0 ? std::vector<std::int64_t>() : all) << "rank 0 writes its own";
    EXPECT_EQ(heard.events.size(), comm->rank() == 0 ? all.size() : 0);
  });
}

TEST(RunEvents, OfSavesSayWhenTheyBegan) {
  const TemporaryFolder folder;
  RunSpec spec = run_with_events("dp=2", 8);
  spec.train.eval_every = 1;
  spec.train.eval_batches = 1;
  spec.data.eval_share = 0.2;
  spec.train.save_every = 1;
  spec.train.async_save = false;
  spec.run.out = folder.path().string();
  const KindsOfRank all = sorted_events(heard_of(spec)[0].events);
  for (const int rank : {0, 1}) {
    for (const EventKind kind : {EventKind::step, EventKind::evaluation, EventKind::save, EventKind::saved}) {
      ASSERT_TRUE(all.at(rank).contains(kind)) << rank << " " << name_of(kind);
      EXPECT_EQ(all.at(rank).at(kind).size(), 8u) << rank << " " << name_of(kind);
    }
    const auto& saves = all.at(rank).at(EventKind::save);
    const auto& saved = all.at(rank).at(EventKind::saved);
    for (std::size_t i = 0; i < std::min(saves.size(), saved.size()); ++i)
      EXPECT_LE(saves[i].time + *saves[i].seconds, saved[i].time + 1e-5) << "its time is when it began, rank " << rank;
  }
}

TEST(RunEvents, CompareClocksBeforeTheErrorPasses) {
  constexpr const char* kReason = "the error would pass run.clock_error";
  std::vector<std::string> reasons;
  // On a busy machine a round trip takes long, and so does its doubling.
  for (const std::int64_t steps : {40, 400, 2000}) {
    RunSpec spec = run_with_events("dp=2", steps);
    spec.run.clock = ClockScope::global;
    spec.run.clock_error = 1e-9;  // less than a round trip: when it has doubled
    reasons = reasons_to_compare(heard_of(spec)[0].events);
    if (std::ranges::find(reasons, kReason) != reasons.end()) break;
  }
  EXPECT_THAT(reasons, testing::Contains(kReason));
}

TEST(RunEvents, OfAClockThatIsOffHaveNoError) {
  RunSpec spec = run_with_events("dp=2", 3);
  spec.run.clock = ClockScope::off;
  const std::vector<HeardRun> heard = heard_of(spec);
  const KindsOfRank all = sorted_events(heard[0].events);
  ASSERT_EQ(all.size(), 2u);
  for (const LoggedEvent& event : heard[0].events) {
    EXPECT_FALSE(event.error);
    EXPECT_NE(event.kind, EventKind::clock);
    EXPECT_NEAR(event.time, seconds_since_1970(), 600);
  }
}

TEST(RunEvents, HaveTheFaultThatEndsARank) {
  struct Failing final : Watcher {
    void happened(const LoggedEvent& event) override { events.push_back(event); }
    bool wants_stop() override {
      if (fails && ++asked == 3) throw EnvironmentError("the disk is gone");
      return false;
    }
    bool fails = false;
    int asked = 0;
    std::vector<LoggedEvent> events;
  };
  const RunSpec spec = run_with_events("dp=3,uneven=on", 10);
  std::array<Failing, 3> watchers;
  watchers[1].fails = true;
  EXPECT_THROW(run_ranks(3,
                         [&](std::unique_ptr<Communicator> comm) {
                           TrainingRun run(spec, Device::cpu, "", {.ranks = comm.get()});
                           run.init_weights();
                           Progress progress;
                           train(run, progress, watchers[static_cast<std::size_t>(comm->rank())]);
                         }),
               EnvironmentError);
  ASSERT_EQ(watchers[1].events.size(), 1u);
  EXPECT_EQ(watchers[1].events[0].kind, EventKind::fault);
  EXPECT_EQ(watchers[1].events[0].rank, 1);
  EXPECT_THAT(watchers[1].events[0].text, testing::HasSubstr("the disk is gone"));
  EXPECT_EQ(watchers[1].events[0].culprit, 1) << "its own doing";
  EXPECT_TRUE(watchers[2].events.empty()) << "it only was left alone";
  EXPECT_EQ(watchers[0].events.back().kind, EventKind::fault);
  EXPECT_EQ(watchers[0].events.back().rank, 0);
  EXPECT_THAT(watchers[0].events.back().text, testing::HasSubstr("rank 1"));
  EXPECT_EQ(watchers[0].events.back().culprit, 1) << "a victim names it";
}

TEST(RunEvents, GoWithTheRunThatIsReplaced) {
  const TemporaryFolder folder;
  std::ofstream(folder / "events.jsonl") << "of the run before";
  { const RunFolder kept(folder.path(), RunFolder::Existing::keep); }
  EXPECT_TRUE(std::filesystem::exists(folder / "events.jsonl"));
  const RunFolder replaced(folder.path(), RunFolder::Existing::replace);
  EXPECT_FALSE(std::filesystem::exists(replaced.events()));
}

}  // namespace
}  // namespace lockstep::tests
