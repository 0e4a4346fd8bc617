// Goodput: the share of a run's time that went into steps that count; where the rest went adds up to the whole.
#include "telemetry/goodput.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "support/program.h"
#include "telemetry/event_log.h"

namespace lockstep::tests {
namespace {

constexpr double kBegin = 1.7e9;

// A run whose files are written by hand, on a clock that the test moves.
class HandRun {
 public:
  double now = kBegin;

  void write(LoggedEvent event) {
    event.time = event.time == 0 ? now : event.time;
    account.add_event(*read_run_event(to_json_line(event)));
  }
  // A try is set up and begins to train; `lost` steps of 2 s before it are undone.
  void start(double set_up, std::optional<LostSteps> lost = {}) {
    now += set_up;
    LoggedEvent event{.kind = EventKind::start, .seconds = set_up};
    event.lost = lost;
    write(event);
  }
  void steps(int count, double seconds = 2) {
    for (int i = 0; i < count; ++i) {
      now += seconds;
      times.push_back(now);
      account.add_step(now, seconds);
    }
  }
  void save(double seconds) {
    write({.kind = EventKind::save, .seconds = seconds});
    now += seconds;
  }
  void evaluate(double seconds) {
    now += seconds;
    write({.kind = EventKind::evaluation, .seconds = seconds});
  }
  void decide(Decision decision) { write({.rank = kOfTheAgent, .kind = EventKind::decision, .decision = decision}); }
  // As a run that resumes cuts metrics.jsonl: the last `count` steps are undone.
  LostSteps undo(std::size_t count) {
    const double until = times.back();
    times.resize(times.size() - count);
    account.forget_steps();
    for (const double time : times) account.add_step(time, 2);
    return {.steps = static_cast<std::int64_t>(count), .from = times.back(), .until = until};
  }
  Goodput value(bool running = false) const { return account.value(now, running).value(); }

  GoodputAccount account;
  std::vector<double> times;
};

void expect_whole(const Goodput& goodput) {
  double sum = 0;
  for (const auto& [name, seconds] : goodput.parts()) {
    EXPECT_GE(seconds, 0) << name;
    sum += seconds;
  }
  EXPECT_NEAR(sum, goodput.whole, 1e-6);
  EXPECT_GE(goodput.share(), 0);
  EXPECT_LE(goodput.share(), 1);
}

constexpr double kSmall = 1e-5;  // times are about 1.7e9: a double has 2e-7 there

TEST(GoodputOfARun, IsStepsOverAllTime) {
  HandRun run;
  run.start(10);
  run.steps(20);
  run.save(3);
  run.evaluate(7);
  run.steps(20);
  run.now += 5;  // the loop itself
  run.write({.kind = EventKind::end});
  const Goodput goodput = run.value();
  expect_whole(goodput);
  EXPECT_NEAR(goodput.whole, 10 + 40 + 3 + 7 + 40 + 5, kSmall);
  EXPECT_NEAR(goodput.steps, 80, kSmall);
  EXPECT_NEAR(goodput.set_up, 10, kSmall);
  EXPECT_NEAR(goodput.saves, 3, kSmall);
  EXPECT_NEAR(goodput.evaluations, 7, kSmall);
  EXPECT_NEAR(goodput.other, 5, kSmall);
  EXPECT_NEAR(goodput.lost + goodput.recovery + goodput.waiting + goodput.stopped, 0, kSmall);
  EXPECT_NEAR(goodput.share(), 80.0 / 105, 1e-6);
}

TEST(GoodputOfARun, LosesTheStepsThatAFaultUndoesAndTheTimeUntilRanksTrainAgain) {
  HandRun run;
  run.start(10);
  run.steps(10);
  run.save(3);
  run.steps(4);
  run.now += 6;  // a step that was not completed, and the discovery
  run.write({.rank = kOfTheAgent, .kind = EventKind::fault});
  run.decide(Decision::same);
  run.now += 1;
  run.start(5, run.undo(4));
  run.steps(10);
  run.write({.rank = kOfTheAgent, .kind = EventKind::restart, .seconds = 8});
  run.write({.kind = EventKind::end});
  const Goodput goodput = run.value();
  expect_whole(goodput);
  EXPECT_NEAR(goodput.whole, 10 + 20 + 3 + 8 + 6 + 1 + 5 + 20, kSmall);
  EXPECT_NEAR(goodput.steps, 40, kSmall);
  EXPECT_NEAR(goodput.lost, 8, kSmall) << "the save in between is a save";
  EXPECT_NEAR(goodput.saves, 3, kSmall);
  EXPECT_NEAR(goodput.recovery, 6 + 1 + 5, kSmall);
  EXPECT_NEAR(goodput.set_up, 10, kSmall);
  EXPECT_NEAR(goodput.other, 0, kSmall);
  EXPECT_EQ(goodput.lost_steps, 4);
  EXPECT_EQ(goodput.restarts, 1);
}

TEST(GoodputOfARun, KnowsWaitingForHostsAndGrowing) {
  HandRun run;
  run.start(1);
  run.steps(10);
  run.now += 2;
  run.decide(Decision::wait);
  run.now += 100;
  run.decide(Decision::shrink);
  run.start(4, run.undo(1));
  run.steps(5);
  run.decide(Decision::grow);
  run.save(3);
  run.write({.kind = EventKind::end});
  run.now += 2;
  run.start(4, run.undo(0));
  run.steps(5);
  const Goodput goodput = run.value(true);
  expect_whole(goodput);
  EXPECT_NEAR(goodput.waiting, 100, kSmall);
  EXPECT_NEAR(goodput.recovery, 2 + 4 + 2 + 4, kSmall);
  EXPECT_NEAR(goodput.lost, 2, kSmall);
  EXPECT_NEAR(goodput.saves, 3, kSmall);
  EXPECT_NEAR(goodput.steps, 2 * 19, kSmall);
  EXPECT_NEAR(goodput.other, 0, kSmall);
  EXPECT_EQ(goodput.restarts, 2);
}

TEST(GoodputOfARun, ThatAPersonHasResumedWasStopped) {
  HandRun run;
  run.start(1);
  run.steps(10);
  run.write({.kind = EventKind::end});
  run.now += 3600;
  run.start(5, run.undo(0));
  run.steps(10);
  run.decide(Decision::end);  // launch gives up, and a day later a person resumes
  run.now += 86400;
  run.start(5, run.undo(2));
  run.steps(2);
  const Goodput goodput = run.value();
  expect_whole(goodput);
  EXPECT_NEAR(goodput.stopped, 3600 + 86400, kSmall);
  EXPECT_NEAR(goodput.set_up, 1 + 5 + 5, kSmall);
  EXPECT_NEAR(goodput.lost, 4, kSmall);
  EXPECT_NEAR(goodput.recovery, 0, kSmall);
  EXPECT_EQ(goodput.restarts, 0);
}

TEST(GoodputOfARun, GrowsWorseWhileNobodyTrainsAndNotWhileAStepIsUnderWay) {
  HandRun run;
  run.start(1);
  run.steps(10);
  run.now += 1.5;
  EXPECT_NEAR(run.value(true).whole, 21, kSmall) << "up to the last completed step";
  run.write({.rank = kOfTheAgent, .kind = EventKind::fault});
  run.decide(Decision::same);
  run.now += 30;
  const Goodput recovering = run.value(true);
  expect_whole(recovering);
  EXPECT_NEAR(recovering.whole, 21 + 31.5, kSmall);
  EXPECT_NEAR(recovering.recovery, 31.5, kSmall);
  run.decide(Decision::wait);
  run.now += 10;
  EXPECT_NEAR(run.value(true).waiting, 10, kSmall);
  EXPECT_NEAR(run.value(true).recovery, 31.5, kSmall);
  EXPECT_NEAR(run.value(false).whole, 21 + 31.5, kSmall) << "of one that is over, up to what was told last";
}

// An asynchronous run goes on without the worker that died, and its log is kept by a server.
TEST(GoodputOfARun, IsThatOfItsStepsWhileOthersGoOn) {
  GoodputAccount account;
  const auto tell = [&](double time, const std::string& kind, const std::string& decision, bool speaks) {
    RunEvent event{.time = kBegin + time,
                   .rank = speaks ? 3 : -1,
                   .kind = kind,
                   .seconds = 1,
                   .text = {},
                   .decision = decision,
                   .speaks = speaks};
    account.add_event(event);
  };
  tell(1, "start", "", true);
  for (int step = 2; step <= 10; ++step) account.add_step(kBegin + step, 1);
  tell(10.5, "fault", "go_on", false);
  tell(10.5, "decision", "go_on", false);
  const Goodput goodput = account.value(kBegin + 100, true).value();
  expect_whole(goodput);
  EXPECT_NEAR(goodput.set_up, 1, kSmall);
  EXPECT_NEAR(goodput.steps, 9, kSmall);
  EXPECT_NEAR(goodput.recovery, 0, kSmall);
  EXPECT_EQ(goodput.restarts, 0);
}

TEST(GoodputOfARun, WithoutEventsIsOfItsStepsAlone) {
  GoodputAccount account;
  EXPECT_FALSE(account.value(kBegin, true));
  account.add_step(kBegin + 2, 2);
  account.add_step(kBegin + 6, 2);
  const Goodput goodput = account.value(kBegin + 100, false).value();
  expect_whole(goodput);
  EXPECT_NEAR(goodput.whole, 6, kSmall);
  EXPECT_NEAR(goodput.steps, 4, kSmall);
  account.forget_steps();
  EXPECT_FALSE(account.value(kBegin, true));
}

TEST(GoodputOfARun, AddsUpWhateverTheFilesSay) {
  std::mt19937 random(3);
  const auto any_time = [&] { return kBegin + static_cast<double>(random() % 1000) - 100; };
  for (int round = 0; round < 300; ++round) {
    GoodputAccount account;
    for (int i = 0; i < 40; ++i) {
      RunEvent event;
      event.time = any_time();
      event.rank = static_cast<int>(random() % 3) - 1;
      const char* const kinds[] = {"start", "save", "evaluation", "fault", "decision", "end", "restart", "other"};
      event.kind = kinds[random() % 8];
      const char* const decisions[] = {"same", "wait", "end", "grow"};
      event.decision = decisions[random() % 4];
      if (random() % 4 > 0) event.seconds = static_cast<double>(random() % 50) - 5;
      if (random() % 2 > 0) event.lost = LostInTry{.steps = 2, .from = any_time(), .until = any_time()};
      if (random() % 10 == 0) event.time = kUnknown;
      account.add_event(event);
      account.add_step(any_time(), static_cast<double>(random() % 5));
      if (const auto goodput = account.value(any_time(), random() % 2 > 0)) expect_whole(*goodput);
    }
  }
}

TEST(GoodputReader, FollowsTheFilesOfARunAndItsResumption) {
  const TemporaryFolder folder;
  GoodputReader reader(folder.path());
  EXPECT_FALSE(reader.update(kBegin, true));
  const auto step = [](int number, double time) {
    return fmt::format("{{\"step\": {}, \"loss\": 1, \"step_ms\": 2000, \"time\": {}}}\n", number, time);
  };
  std::ofstream(folder / "events.jsonl") << to_json_line({.time = kBegin + 1, .kind = EventKind::start, .seconds = 1});
  std::ofstream(folder / "metrics.jsonl") << step(1, kBegin + 3) << "no step\n"
                                          << "{\"step\": 1, \"eval_loss\": 1, \"time\": 9e9}\n";
  EXPECT_NEAR(reader.update(kBegin + 3, true).value().steps, 2, kSmall);
  std::ofstream(folder / "metrics.jsonl", std::ios::app) << step(2, kBegin + 5);
  const Goodput two = reader.update(kBegin + 5, true).value();
  EXPECT_NEAR(two.steps, 4, kSmall);
  EXPECT_NEAR(two.whole, 5, kSmall);
  std::filesystem::rename(folder / "metrics.jsonl", folder / "old");
  std::ofstream(folder / "metrics.jsonl") << step(1, kBegin + 3);
  EXPECT_NEAR(reader.update(kBegin + 5, true).value().steps, 2, kSmall) << "the second was undone";
}

}  // namespace
}  // namespace lockstep::tests
