// What ranks are doing, on disk while they are held: always whole, and nothing is left behind.
#include "telemetry/heartbeat.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "support/program.h"
#include "support/sanitizer.h"
#include "telemetry/rank_folder.h"
#include "telemetry/rank_now.h"

namespace lockstep::tests {
namespace {

using namespace std::chrono_literals;

std::optional<RankNow> now_of(const TemporaryFolder& run, int rank) {
  return read_rank_now(rank_file(run.path(), rank, "now"));
}

// Whether it comes true within a minute.
bool comes_true(const std::function<bool()>& claim) {
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (!claim()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

std::int64_t entries_in(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}

TEST(Doing, IsReadWhole) {
  static constexpr const char* kGroups[] = {"tp", "dp", "pp"};
  static constexpr const char* kOps[] = {"send", "gather", "reduce"};
  Doing doing;
  const std::jthread rank([&](const std::stop_token& stop) {
    for (std::int64_t i = 0; !stop.stop_requested(); ++i) {
      doing.begin_step(i);
      doing.begin_action(static_cast<int>(i % 1000));
      const InCall call(&doing, kGroups[i % 3], kOps[i % 3], i);
    }
  });
  int calls = 0, actions = 0;
  const auto begin = std::chrono::steady_clock::now();
  const auto for_long = [&](auto time) { return std::chrono::steady_clock::now() - begin > time; };
  // On one busy core the two threads take long turns.
  while (!for_long(500ms) || (!for_long(30s) && (calls == 0 || actions == 0))) {
    const std::optional<DoingState> state = doing.load();
    if (!state) continue;
    if (state->kind == DoingKind::call) {
      ++calls;
      ASSERT_EQ(state->call, state->step);
      ASSERT_EQ(state->action, state->step % 1000);
      ASSERT_EQ(state->group, kGroups[state->step % 3]);
      ASSERT_EQ(state->op, kOps[state->step % 3]);
    } else if (state->kind == DoingKind::action) {
      ++actions;
      ASSERT_EQ(state->action, state->step % 1000);
      ASSERT_EQ(state->call, -1);
      ASSERT_EQ(state->group, nullptr);
    }
  }
  EXPECT_GT(calls, 0);
  EXPECT_GT(actions, 0);
}

TEST(Doing, AfterACallIsWhereItWasSinceThen) {
  Doing doing;
  doing.begin_step(5);
  doing.begin_action(2);
  const DoingState before = *doing.load();
  {
    const InCall outer(&doing, "dp", "all_reduce", 7);
    { const InCall inner(&doing, "tp", "send", 8); }
    EXPECT_STREQ(doing.load()->group, "dp");
    EXPECT_EQ(doing.load()->call, 7);
    EXPECT_EQ(doing.load()->action, 2);
    EXPECT_GE(doing.load()->since, before.since);
  }
  const DoingState after = *doing.load();
  EXPECT_EQ(after.kind, DoingKind::action);
  EXPECT_EQ(after.since, before.since);
  EXPECT_EQ(after.call, -1);
  doing.enter(DoingKind::evaluating);
  EXPECT_EQ(doing.load()->action, -1);
  EXPECT_EQ(doing.load()->step, 5);
  const InCall none(nullptr, "dp", "all_reduce", 7);
}

TEST(Doing, IsStoredInLessThanAMicrosecond) {
  Doing doing;
  double best = 1;
  for (int batch = 0; batch < 50; ++batch) {
    const std::int64_t begin = steady_nanoseconds();
    for (int i = 0; i < 1000; ++i) doing.begin_action(i);
    best = std::min(best, static_cast<double>(steady_nanoseconds() - begin) * 1e-12);
  }
  EXPECT_LT(best, 1e-6 * kSlowdown);
}

TEST(Heartbeat, ShowsTheCallThatHoldsARankAndForHowLong) {
  const TemporaryFolder run;
  Heartbeat heartbeat(run.path(), {.period = 5ms});
  const std::jthread rank([&](const std::stop_token& stop) {
    Doing& doing = heartbeat.add(3, {"forward block.0", "backward block.0"});
    doing.begin_step(17);
    doing.begin_action(1);
    const InCall call(&doing, "dp", "all_reduce", 41);
    while (!stop.stop_requested()) std::this_thread::sleep_for(1ms);
  });
  Doing& other = heartbeat.add(70000, {});
  other.begin_step(16);
  other.begin_action(9);
  const auto in_call = [&] { return now_of(run, 3) && now_of(run, 3)->doing == DoingKind::call; };
  const auto in_action = [&] { return now_of(run, 70000) && now_of(run, 70000)->doing == DoingKind::action; };
  ASSERT_TRUE(comes_true(in_call));
  ASSERT_TRUE(comes_true(in_action));
  const RankNow first = *now_of(run, 3);
  ASSERT_TRUE(comes_true([&] { return now_of(run, 3)->seconds > first.seconds + 0.05; }));
  const RankNow later = *now_of(run, 3);
  EXPECT_EQ(later.rank, 3);
  EXPECT_EQ(later.pid, ::getpid());
  EXPECT_NE(later.host, "");
  EXPECT_EQ(later.step, 17);
  EXPECT_EQ(later.action, "backward block.0");
  EXPECT_EQ(later.group, "dp");
  EXPECT_EQ(later.op, "all_reduce");
  EXPECT_EQ(later.call, 41);
  EXPECT_NEAR(later.time - first.time, later.seconds - first.seconds, 0.1 * kSlowdown);
  EXPECT_EQ(now_of(run, 70000)->action, "action 9");  // beyond its names
  EXPECT_EQ(now_of(run, 70000)->call, -1);
}

// What hangs are judged by (stalls.h).
TEST(Heartbeat, SaysHowLongNothingHasMovedAndHowLongItUsuallyTakes) {
  const TemporaryFolder run;
  Heartbeat heartbeat(run.path(), {.period = 5ms});
  Doing& doing = heartbeat.add(0, {"forward block.0", "backward block.0"});
  for (int step = 1; step <= 3; ++step) {
    doing.begin_step(step);
    doing.begin_action(0);
    std::this_thread::sleep_for(20ms);
    doing.begin_action(1);
  }
  doing.begin_step(4);
  doing.begin_action(0);
  ASSERT_TRUE(comes_true([&] { return now_of(run, 0) && now_of(run, 0)->quiet > 0.1; }));
  const RankNow held = *now_of(run, 0);
  ASSERT_TRUE(held.usual) << "it has been there three times";
  EXPECT_GE(*held.usual, 0.02);
  EXPECT_LE(*held.usual, 0.1 * kSlowdown + 0.1);
  EXPECT_LE(held.quiet, held.seconds);
  // A call that begins and ends is a move, though the rank is where it was.
  { const InCall call(&doing, "dp", "all_reduce", 1); }
  ASSERT_TRUE(comes_true([&] { return now_of(run, 0)->quiet < held.quiet; }));
  EXPECT_GE(now_of(run, 0)->seconds, held.seconds);
  EXPECT_EQ(now_of(run, 0)->doing, DoingKind::action);
  {
    const InCall call(&doing, "dp", "all_reduce", 2);
    ASSERT_TRUE(comes_true([&] { return now_of(run, 0)->doing == DoingKind::call; }));
    EXPECT_EQ(now_of(run, 0)->usual, held.usual) << "of the action";
  }
  doing.begin_action(1);
  ASSERT_TRUE(comes_true([&] { return now_of(run, 0)->action == "backward block.0"; }));
  const RankNow next = *now_of(run, 0);
  EXPECT_TRUE(!next.usual || *next.usual < *held.usual) << "each place has a usual time of its own";
  doing.enter(DoingKind::saving);
  ASSERT_TRUE(comes_true([&] { return now_of(run, 0)->doing == DoingKind::saving; }));
  EXPECT_FALSE(now_of(run, 0)->usual) << "the first save";
}

TEST(Heartbeat, EveryReaderSeesAWholeFile) {
  const TemporaryFolder run;
  Heartbeat heartbeat(run.path(), {.period = 100us});
  std::vector<std::jthread> ranks;
  for (int r = 0; r < 3; ++r)
    ranks.emplace_back([&, r](const std::stop_token& stop) {
      // Names of many lengths, so that half a file of one would show.
      Doing& doing = heartbeat.add(r, {"a", std::string(900, 'b'), std::string(90, 'c')});
      for (std::int64_t i = 0; !stop.stop_requested(); ++i) {
        doing.begin_step(i);
        doing.begin_action(static_cast<int>(i % 3));
        std::this_thread::yield();
        const InCall call(&doing, "dp", "all_reduce", i);
        std::this_thread::yield();
      }
    });
  for (int r = 0; r < 3; ++r) ASSERT_TRUE(comes_true([&] { return now_of(run, r).has_value(); }));
  std::int64_t steps_seen = 0, last = -1;
  for (int i = 0; i < 3000; ++i)
    for (int r = 0; r < 3; ++r) {
      const std::optional<RankNow> now = now_of(run, r);  // throws for what is not whole
      ASSERT_TRUE(now);
      ASSERT_EQ(now->rank, r);
      ASSERT_EQ(now->call, now->doing == DoingKind::call ? now->step : -1);
      if (r == 0 && now->step != std::exchange(last, now->step)) ++steps_seen;
    }
  EXPECT_GT(steps_seen, 3);
}

TEST(Heartbeat, EndsAtOnceAndSaysSo) {
  const TemporaryFolder run;
  const auto begin = std::chrono::steady_clock::now();
  {
    Heartbeat heartbeat(run.path(), {.period = 1min});
    Doing& doing = heartbeat.add(0, {"forward"});
    doing.begin_step(8);
    doing.begin_action(0);
    heartbeat.add(1, {});
    std::this_thread::sleep_for(100ms);  // its thread waits by now
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
  EXPECT_EQ(now_of(run, 0)->doing, DoingKind::ended);
  EXPECT_EQ(now_of(run, 0)->step, 8);
  EXPECT_EQ(now_of(run, 0)->action, "forward");  // where it was
  EXPECT_EQ(now_of(run, 1)->doing, DoingKind::ended);
}

TEST(Heartbeat, LeavesNoThreadNoDescriptorAndNoPartialFile) {
  const TemporaryFolder run;
  const std::int64_t threads = entries_in("/proc/self/task"), descriptors = entries_in("/proc/self/fd");
  for (int i = 0; i < 20; ++i) {
    Heartbeat heartbeat(run.path(), {.period = 100us});
    for (int r = 0; r < 5; ++r) heartbeat.add(r, {});
    ASSERT_TRUE(comes_true([&] { return now_of(run, 4).has_value(); }));
    std::this_thread::sleep_for(2ms);
  }
  // A thread that was joined is in /proc for a moment longer.
  ASSERT_TRUE(comes_true([&] { return entries_in("/proc/self/task") <= threads; }));
  EXPECT_EQ(entries_in("/proc/self/fd"), descriptors);
  EXPECT_EQ(entries_in((run / "ranks").c_str()), 5);
}

TEST(Heartbeat, LeavesTheFileOfARankThatHasEndedAlone) {
  const TemporaryFolder run;
  const std::filesystem::path file = rank_file(run.path(), 2, "now");
  {
    Heartbeat heartbeat(run.path(), {.period = 1ms});
    Doing& doing = heartbeat.add(2, {"forward"});
    heartbeat.add(0, {});
    doing.begin_step(4);
    doing.enter(DoingKind::ended);
    ASSERT_TRUE(comes_true([&] { return now_of(run, 2) && now_of(run, 2)->doing == DoingKind::ended; }));
    EXPECT_EQ(now_of(run, 2)->step, 4);
    std::filesystem::remove(file);  // as another process would replace it
    const double then = now_of(run, 0)->time;
    ASSERT_TRUE(comes_true([&] { return now_of(run, 0)->time > then + 0.02; }));
    EXPECT_FALSE(std::filesystem::exists(file));
    // It joins again, with other actions.
    EXPECT_EQ(&heartbeat.add(2, {"backward"}), &doing);
    doing.begin_action(0);
    ASSERT_TRUE(comes_true([&] { return now_of(run, 2) && now_of(run, 2)->action == "backward"; }));
    doing.enter(DoingKind::ended);
    ASSERT_TRUE(comes_true([&] { return now_of(run, 2)->doing == DoingKind::ended; }));
    std::filesystem::remove(file);
  }
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(Heartbeat, AWriteThatFailsIsMadeUpForByTheNext) {
  const TemporaryFolder run;
  Heartbeat heartbeat(run.path(), {.period = 1ms});
  heartbeat.add(0, {}).enter(DoingKind::ended);
  heartbeat.add(1, {});
  const std::filesystem::path hidden = run / "hidden";
  ASSERT_TRUE(comes_true([&] { return now_of(run, 1).has_value(); }));
  std::filesystem::rename(run / "ranks", hidden);
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(std::filesystem::exists(run / "ranks"));
  Doing& late = heartbeat.add(2, {});
  late.begin_step(3);
  late.enter(DoingKind::ended);  // its only file fails at first
  std::this_thread::sleep_for(20ms);
  std::filesystem::rename(hidden, run / "ranks");
  const double then = now_of(run, 1)->time;
  ASSERT_TRUE(comes_true([&] { return now_of(run, 1)->time > then; }));
  ASSERT_TRUE(comes_true([&] { return now_of(run, 2) && now_of(run, 2)->doing == DoingKind::ended; }));
}

TEST(Heartbeat, ShowsMemoryThatIsTakenAndGivenBackAndNotWhatIsTakenOnce) {
  constexpr std::int64_t kMiB = 1 << 20, kTaken = 96 * kMiB;
  const TemporaryFolder run;
  Heartbeat heartbeat(run.path(), {.period = 20ms});
  heartbeat.add(0, {});
  const auto memory = [&] {
    const auto now = now_of(run, 0);
    return now && now->memory ? *now->memory : RankMemory{};
  };
  ASSERT_TRUE(comes_true([&] { return memory().held > 0; }));
  const std::int64_t before = memory().held;
  void* const taken = ::mmap(nullptr, kTaken, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(taken, MAP_FAILED);
  std::memset(taken, 1, kTaken);
  ASSERT_TRUE(comes_true([&] { return memory().held > before + kTaken / 2; }));
  EXPECT_LT(memory().swing, kTaken / 2);
  ASSERT_EQ(::munmap(taken, kTaken), 0);
  EXPECT_TRUE(comes_true([&] { return memory().swing > kTaken / 2; }));
}

TEST(Heartbeat, RefusesWhatItCannotDo) {
  const TemporaryFolder run;
  EXPECT_THROW(Heartbeat("/dev/null/run"), EnvironmentError);
  EXPECT_THROW(Heartbeat(run.path(), {.period = 0s}), ProgramError);
  Heartbeat heartbeat(run.path());
  EXPECT_THROW(heartbeat.add(-1, {}), ProgramError);
  EXPECT_THROW(heartbeat.add(kMostRanks, {}), ProgramError);
}

}  // namespace
}  // namespace lockstep::tests
