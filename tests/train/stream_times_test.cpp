// Times of a stream that runs ahead, against one whose work takes times that are known.
#include "train/stream_times.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace lockstep::tests {
namespace {

// Its clock runs only by the work that it is given.
class ToldStream final : public Stream {
 public:
  ToldStream() : Stream(Device::cpu) {}
  struct Point final : Event {
    bool done() override { return true; }
    void wait() override {}
    double at = -1;
  };
  std::unique_ptr<Event> make_event() override { return std::make_unique<Point>(); }
  std::unique_ptr<Event> make_timed_event() override {
    ++made;
    return make_event();
  }
  double seconds_between(Event& first, Event& second) override {
    return static_cast<Point&>(second).at - static_cast<Point&>(first).at;
  }
  void record(Event& event) override { static_cast<Point&>(event).at = now; }
  void wait(Event&) override {}
  void synchronize() override { FAIL() << "nobody may wait for it"; }

  double now = 0;
  int made = 0;
};

// A step of two waits and an update, this many times as long.
void give_step(ToldStream& stream, StreamTimes& times, double by) {
  TimeAccount account(&times);
  times.begin_step();
  account.enter(TimeUse::compute);
  stream.now += 4 * by;
  {
    const Spending waiting(&account, TimeUse::wait_dp);
    stream.now += 1 * by;
  }
  stream.now += 2 * by;
  {
    const Spending waiting(&account, TimeUse::wait_tp);
    stream.now += 0.5 * by;
  }
  account.enter(TimeUse::optimizer);
  stream.now += 3 * by;
  times.end_step();
}

void expect_step(const StreamStep& step, double by, double idle) {
  EXPECT_DOUBLE_EQ(step.uses[TimeUse::compute], 6 * by);
  EXPECT_DOUBLE_EQ(step.uses[TimeUse::wait_dp], 1 * by);
  EXPECT_DOUBLE_EQ(step.uses[TimeUse::wait_tp], 0.5 * by);
  EXPECT_DOUBLE_EQ(step.uses[TimeUse::optimizer], 3 * by);
  EXPECT_DOUBLE_EQ(step.uses.total(), 10.5 * by);
  EXPECT_DOUBLE_EQ(step.idle, idle);
}

TEST(StreamTimes, AreThoseOfTheStreamAndReadWhenTheStepIsDone) {
  ToldStream stream;
  StreamTimes times(stream, 2);
  give_step(stream, times, 1);
  stream.now += 7;
  times.mark(TimeUse::evaluate);  // of no step
  give_step(stream, times, 2);
  expect_step(times.read(), 1, 0);
  for (int step = 3; step < 20; ++step) {  // two in flight, as on a GPU
    stream.now += step;
    give_step(stream, times, step);
    expect_step(times.read(), step - 1, step == 3 ? 7 : step - 1);
  }
  EXPECT_LE(stream.made, 3 * 8) << "events are made once";
  expect_step(times.read(), 19, 19);
  EXPECT_THROW(times.read(), ProgramError);
}

TEST(StreamTimes, OfMoreStepsThanCanBeInFlightAreRefused) {
  ToldStream stream;
  StreamTimes times(stream, 2);
  give_step(stream, times, 1);
  give_step(stream, times, 1);
  EXPECT_THROW(times.begin_step(), ProgramError);
}

TEST(StreamTimes, OfAPausedAccountAreNotMarked) {
  ToldStream stream;
  StreamTimes times(stream, 2);
  TimeAccount account(&times);
  account.pause(true);
  times.begin_step();
  account.enter(TimeUse::optimizer);
  stream.now += 1;
  times.end_step();
  EXPECT_DOUBLE_EQ(times.read().uses[TimeUse::compute], 1);
}

}  // namespace
}  // namespace lockstep::tests
