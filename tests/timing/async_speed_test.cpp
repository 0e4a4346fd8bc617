// Asynchronous servers and a slow worker: the others keep their pace, where synchronous ones fall to the slowest. Work
// is sleeping, so that it needs no cores.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "comm/threads/run_ranks.h"
#include "support/async_ranks.h"
#include "support/devices.h"
#include "support/host_run.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

using SpeedClock = std::chrono::steady_clock;

constexpr int kSpeedWorkers = 4;
constexpr std::int64_t kSpeedSteps = 12;
constexpr auto kUsual = std::chrono::milliseconds(60);

std::chrono::milliseconds work_of(int worker, bool slowed) {
  return slowed && worker == kSpeedWorkers - 1 ? 2 * kUsual : kUsual;
}

struct Pace {
  double others = 0;  // tickets per second of a worker that is not slowed
  double slow = 0;    // of the last one
};

Pace pace_of(bool asynchronous, bool slowed) {
  const Replica::Options o =
      async_options(tiny_specs()[0].spec, async_layout(kSpeedWorkers, 1), asynchronous ? kNoStalenessBound : 0, 1);
  std::vector<std::vector<SpeedClock::time_point>> begun(kSpeedWorkers);  // tickets, by worker
  const auto work = [&](int worker) {
    begun[static_cast<std::size_t>(worker)].push_back(SpeedClock::now());
    std::this_thread::sleep_for(work_of(worker, slowed));
  };
  if (asynchronous) {
    train_async(o, {.steps = kSpeedSteps, .before_ticket = [&](int worker, std::int64_t) { work(worker); }});
  } else {
    run_ranks(static_cast<int>(o.layout.ranks()), [&](std::unique_ptr<Communicator> group) {
      const int rank = group->rank();
      CpuDevice cpu;
      Replica replica(o, {*group, *group}, cpu.memory(), cpu.stream());
      replica.init_weights();
      const auto count = static_cast<std::size_t>(replica.given().count * o.T);
      const std::vector<std::int32_t> tokens(count, 1), targets(count, 2);
      for (std::int64_t step = 0; step < kSpeedSteps; ++step) {
        if (rank < kSpeedWorkers) work(rank);
        replica.step(tokens, targets);
      }
    });
  }
  const auto rate = [&](int worker) {
    const auto& times = begun[static_cast<std::size_t>(worker)];
    return static_cast<double>(times.size() - 1) / std::chrono::duration<double>(times.back() - times.front()).count();
  };
  Pace pace{.slow = rate(kSpeedWorkers - 1)};
  for (int worker = 0; worker + 1 < kSpeedWorkers; ++worker) pace.others += rate(worker) / (kSpeedWorkers - 1);
  return pace;
}

// For the table of docs/synchronization.md: --gtest_output=json has it.
void note_pace(const std::string& what, const Pace& pace) {
  ::testing::Test::RecordProperty(what, fmt::format("{:.2f} and {:.2f} tickets per second", pace.others, pace.slow));
}

// A busy machine wakes threads late: a try of three is enough.
TEST(AsyncSpeed, OfTheOthersStaysWhenOneWorkerIsSlow) {
  double best = 0;
  for (int attempt = 0; attempt < 3 && best < 0.95; ++attempt) {
    const Pace even = pace_of(true, false), slowed = pace_of(true, true);
    note_pace("async_even", even);
    note_pace("async_slowed", slowed);
    best = std::max(best, slowed.others / even.others);
    EXPECT_LT(slowed.slow, 0.7 * slowed.others) << "the slow one makes fewer tickets";
  }
  EXPECT_GE(best, 0.95);
  const Pace even = pace_of(false, false), slowed = pace_of(false, true);
  note_pace("sync_even", even);
  note_pace("sync_slowed", slowed);
  EXPECT_LT(slowed.others, 0.65 * even.others) << "synchronous workers wait for the slow one";
}

}  // namespace
}  // namespace lockstep::tests
