// The simulator that jumps from event to event against one that does not: second by second, device by device, written
// from the comment of plan/goodput.h alone and sharing nothing with it.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "plan/goodput.h"

namespace lockstep {
namespace {

// All times of the spec are whole seconds, and a shrunk step takes whole seconds too.
class TickingRun {
 public:
  TickingRun(const GoodputSpec& spec, std::uint64_t seed)
      : spec_(spec),
        random_(seed),
        device_fails_(chance(spec.device_hours_between_failures)),
        node_fails_(chance(spec.node_hours_between_failures)),
        back_at_(static_cast<std::size_t>(spec.nodes() + spec.spare_nodes), 0) {
    use(choose_nodes());
  }

  double goodput() {
    const auto duration = static_cast<std::int64_t>(spec_.duration_seconds);
    for (now_ = 0; now_ < duration; ++now_) {
      while (left_ == 0 && advance()) {
      }
      if (somebody_fails()) continue;  // this second is lost: the bound of the comparison has it
      if (left_ > 0) --left_;
      if (writing_ > 0 && --writing_ == 0) on_disk_ = written_;
    }
    if (phase_ == Phase::step && left_ == 0) ++steps_;
    return static_cast<double>(steps_) * spec_.step_seconds / spec_.duration_seconds;
  }
  std::int64_t failures() const { return failures_; }

 private:
  enum class Phase { begin, step, writer_busy, stall, flush, detect, wait, restart };

  // The chance of a failure within a second, as the share of 64-bit numbers that are below it.
  static std::uint64_t chance(double hours) {
    return hours > 0 ? static_cast<std::uint64_t>(-std::expm1(-1 / (hours * 3600)) * 0x1p64) : 0;
  }
  bool happens(std::uint64_t chance) { return chance > 0 && random_() < chance; }
  void enter(Phase phase, double seconds) {
    phase_ = phase;
    left_ = std::llround(seconds);
  }

  // The nodes that a run can have, the first that work; none: it has to wait.
  std::vector<std::size_t> choose_nodes() const {
    std::vector<std::size_t> working;
    for (std::size_t n = 0; n < back_at_.size(); ++n)
      if (back_at_[n] <= now_) working.push_back(n);
    auto want = static_cast<std::size_t>(spec_.nodes());
    while (want > working.size()) want = spec_.shrink ? want - static_cast<std::size_t>(spec_.nodes_per_replica) : 0;
    working.resize(want);
    return working;
  }
  void use(std::vector<std::size_t> nodes) { in_use_ = std::move(nodes); }
  bool could_grow() const {
    return static_cast<std::int64_t>(in_use_.size()) < spec_.nodes() && choose_nodes().size() > in_use_.size();
  }

  // What follows when a phase has no second left. False: its next second has to pass.
  bool advance() {
    const bool due = steps_ > on_disk_ && steps_ % spec_.save_every == 0;
    switch (phase_) {
      case Phase::begin:
        enter_step();
        break;
      case Phase::step:
        ++steps_;
        if (steps_ % spec_.save_every == 0)
          enter(Phase::writer_busy, 0);
        else
          enter_step();
        break;
      case Phase::writer_busy:
        if (writing_ > 0) return false;
        enter(Phase::stall, spec_.save_stall_seconds);
        break;
      case Phase::stall:
        EXPECT_TRUE(due);
        written_ = steps_;
        writing_ = std::llround(spec_.save_write_seconds);
        if (writing_ == 0) on_disk_ = written_;
        if (could_grow())
          enter(Phase::flush, spec_.save_write_seconds);
        else
          enter_step();
        break;
      case Phase::flush:
        use(choose_nodes());
        enter(Phase::restart, spec_.restart_seconds + spec_.load_seconds);
        break;
      case Phase::detect:
      case Phase::wait:
        use(choose_nodes());
        if (!in_use_.empty()) {
          enter(Phase::restart, spec_.restart_seconds + spec_.load_seconds);
          break;
        }
        phase_ = Phase::wait;  // all that work are at risk
        for (std::size_t n = 0; n < back_at_.size(); ++n)
          if (back_at_[n] <= now_) in_use_.push_back(n);
        return false;
      case Phase::restart:
        enter_step();
        break;
    }
    return true;
  }
  void enter_step() {
    enter(Phase::step, spec_.step_seconds * static_cast<double>(spec_.nodes()) / static_cast<double>(in_use_.size()));
  }

  bool somebody_fails() {
    bool any = false;
    for (std::size_t i = 0; i < in_use_.size();) {
      bool fails = happens(node_fails_);
      for (std::int64_t d = 0; d < spec_.devices_per_node; ++d) fails = happens(device_fails_) || fails;
      if (fails) {
        any = true;
        ++failures_;
        back_at_[in_use_[i]] = now_ + 1 + std::llround(spec_.detect_seconds + spec_.repair_seconds);
        in_use_.erase(in_use_.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
    if (any) {
      steps_ = on_disk_;
      writing_ = 0;
      enter(Phase::detect, spec_.detect_seconds);
    }
    return any;
  }

  const GoodputSpec spec_;
  std::mt19937_64 random_;
  const std::uint64_t device_fails_, node_fails_;
  std::int64_t now_ = 0, left_ = 0, writing_ = 0, steps_ = 0, written_ = 0, on_disk_ = 0, failures_ = 0;
  Phase phase_ = Phase::begin;
  std::vector<std::int64_t> back_at_;  // by node
  std::vector<std::size_t> in_use_;
};

struct BruteForceCase {
  const char* name;
  GoodputSpec spec;
};
void PrintTo(const BruteForceCase& test, std::ostream* out) { *out << test.name; }

class GoodputBruteForce : public testing::TestWithParam<BruteForceCase> {};

// Means of repeats, within four standard errors of their difference and one second per failure, which ticking rounds.
TEST_P(GoodputBruteForce, SecondBySecondAndDeviceByDeviceGivesTheSame) {
  GoodputSpec spec = GetParam().spec;
  constexpr int kTicking = 24;
  std::vector<double> ticking;
  double failures = 0;
  for (int repeat = 0; repeat < kTicking; ++repeat) {
    TickingRun run(spec, static_cast<std::uint64_t>(repeat) + 1);
    ticking.push_back(run.goodput());
    failures += static_cast<double>(run.failures()) / kTicking;
  }
  const double mean = std::accumulate(ticking.begin(), ticking.end(), 0.0) / kTicking;
  double squares = 0;
  for (const double value : ticking) squares += (value - mean) * (value - mean);
  const double error = std::sqrt(squares / (kTicking - 1) / kTicking);

  spec.repeats = 2000;
  const GoodputForecast forecast = simulate_goodput(spec);
  const double bound = 4 * std::hypot(error, forecast.deviation / std::sqrt(2000.0)) + failures / spec.duration_seconds;
  EXPECT_NEAR(forecast.mean, mean, bound);
  EXPECT_LT(bound, 0.025) << "a comparison that says something";
  EXPECT_NEAR(forecast.failures / failures, 1, 4 / std::sqrt(kTicking * failures) + 0.003);
  EXPECT_LT(mean, 0.97) << "and failures cost something";
}

// A device fails every 1.2 hours or so: with 6 of them, a failure every 12 minutes.
const GoodputSpec kBruteForceBase{.step_seconds = 12,
                                  .ranks = 6,
                                  .devices_per_node = 1,
                                  .device_hours_between_failures = 1.2,
                                  .save_every = 10,
                                  .save_stall_seconds = 5,
                                  .detect_seconds = 10,
                                  .restart_seconds = 40,
                                  .load_seconds = 15,
                                  .duration_seconds = 300'000};

BruteForceCase brute_force(const char* name, void (*change)(GoodputSpec&)) {
  BruteForceCase test{name, kBruteForceBase};
  change(test.spec);
  return test;
}

INSTANTIATE_TEST_SUITE_P(
    Cases, GoodputBruteForce,
    testing::Values(
        brute_force("same_nodes", [](GoodputSpec&) {}),
        brute_force("asynchronous_saves", [](GoodputSpec& s) { s.save_write_seconds = 90; }),
        brute_force("saves_wait_for_the_disk", [](GoodputSpec& s) { s.save_write_seconds = 200; }),
        brute_force("nodes_of_devices", [](GoodputSpec& s) { s.devices_per_node = 2, s.repair_seconds = 300; }),
        brute_force("nodes_that_fail",
                    [](GoodputSpec& s) { s.devices_per_node = 3, s.node_hours_between_failures = 1; }),
        brute_force("repairs", [](GoodputSpec& s) { s.repair_seconds = 700; }),
        brute_force("spares_that_run_out", [](GoodputSpec& s) { s.spare_nodes = 2, s.repair_seconds = 1500; }),
        brute_force("long_recovery", [](GoodputSpec& s) { s.restart_seconds = 500, s.repair_seconds = 200; }),
        brute_force("long_detection", [](GoodputSpec& s) { s.ranks = 2, s.detect_seconds = 900; }),
        brute_force("grows_by_a_slow_disk",
                    [](GoodputSpec& s) {
                      s.shrink = true, s.ranks = 4, s.repair_seconds = 600, s.save_every = 40;
                      s.save_write_seconds = 600, s.detect_seconds = 400, s.restart_seconds = 400;
                    }),
        brute_force("shrinks",
                    [](GoodputSpec& s) {
                      s.shrink = true, s.ranks = 4, s.repair_seconds = 2000, s.save_write_seconds = 30;
                    }),
        brute_force("shrinks_by_replicas",
                    [](GoodputSpec& s) { s.shrink = true, s.nodes_per_replica = 2, s.repair_seconds = 1500; }),
        brute_force("shrinks_with_a_spare",
                    [](GoodputSpec& s) {
                      s.shrink = true, s.nodes_per_replica = 3, s.spare_nodes = 1, s.repair_seconds = 900;
                      s.save_write_seconds = 150;
                    })),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep
