#include "campaign/recovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <fstream>
#include <functional>
#include <numeric>
#include <stdexcept>

#include "campaign/campaign_run.h"
#include "campaign/inject.h"
#include "plan/goodput.h"

namespace lockstep::tests {

namespace fs = std::filesystem;

namespace {

constexpr double kHang = 120;

double calendar() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// The steps that metrics.jsonl has, and when each was done.
struct StepTimes {
  std::vector<std::pair<std::int64_t, double>> steps;
};
StepTimes steps_in(const fs::path& out) {
  StepTimes all;
  std::ifstream lines(out / "metrics.jsonl");
  for (std::string line; std::getline(lines, line);)
    if (const auto object = nlohmann::json::parse(line, nullptr, false); object.is_object() && object.contains("loss"))
      all.steps.emplace_back(object["step"], object["time"]);
  return all;
}

class Runner {
 public:
  Runner(const CampaignCase& c, const fs::path& folder, int number) : run_(c, folder, number) { run_.start(); }

  CampaignRun& run() { return run_; }
  void wait(double seconds, const std::string& what, const std::function<bool()>& condition) {
    if (!wait_until(run_, seconds, condition))
      throw std::runtime_error(fmt::format("{} has not happened within {:.0f} s\n{}", what, seconds, run_.said()));
  }
  // New ones, that no fault has undone.
  void wait_for_steps(std::int64_t count) {
    const std::int64_t then = std::max(furthest_, run_.step());
    wait(kHang, fmt::format("{} steps", count), [&] { return run_.step() >= then + count; });
  }
  // Does this to a rank; when its epoch's first step was done, and when the fault was found.
  struct Recovered {
    double faulted = 0, found = 0, stepped = 0;
  };
  Recovered fault(Draws& draws, int signal) {
    Recovered times;
    const CampaignEvents before = run_.events();
    std::map<int, pid_t> ranks;
    wait(kHang, "a rank", [&] { return !(ranks = run_.ranks()).empty(); });
    const pid_t pid = std::next(ranks.begin(), draws.below(std::ssize(ranks)))->second;
    furthest_ = std::max(furthest_, run_.step());
    times.faulted = calendar();
    ::kill(pid, signal);
    double started = 0;
    wait(kHang, "a new start", [&] {
      const CampaignEvents now = run_.events();
      if (now.starts.size() <= before.starts.size() || now.agent_faults.size() <= before.agent_faults.size())
        return false;
      started = now.starts.back()["time"];
      times.found = now.agent_faults.back()["time"];
      return true;
    });
    wait(kHang, "a step", [&] {
      for (const auto& [step, time] : steps_in(run_.out()).steps)
        if (time > started) {
          times.stepped = time;
          return true;
        }
      return false;
    });
    return times;
  }

 private:
  CampaignRun run_;
  std::int64_t furthest_ = 0;
};

}  // namespace

std::vector<double> recovery_seconds(const RecoveryTrials& trials, const fs::path& folder, int number) {
  std::vector<double> all;
  Draws draws(17);
  for (int run = 0; static_cast<int>(all.size()) < trials.trials; ++run) {
    Runner runner(trials.the_case, folder / fmt::format("run-{}", run), number);
    for (int i = 0; i < trials.most_per_run && static_cast<int>(all.size()) < trials.trials; ++i) {
      runner.wait_for_steps(5 + draws.below(20));
      const auto times = runner.fault(draws, trials.hangs ? SIGSTOP : SIGKILL);
      all.push_back(times.stepped - (trials.hangs ? times.found : times.faulted));
      fmt::print(stderr, "{:.2f} ", all.back());
    }
  }
  return all;
}

// The simulator is told what the first minutes have shown: a step without faults, and a restart.
SoakOutcome soak(const Soak& asked, const fs::path& folder, int number) {
  SoakOutcome outcome;
  Draws draws(asked.seed);
  Runner runner(asked.the_case, folder, number);
  CampaignRun& run = runner.run();
  runner.wait_for_steps(50);
  const std::int64_t calm_from = run.step();
  const auto calm = SteadyClock::now();
  wait_until(run, std::clamp(asked.seconds / 20, 10.0, 120.0), [] { return false; });
  outcome.step_seconds = seconds_since(calm) / static_cast<double>(run.step() - calm_from);
  constexpr int kRestarts = 10;
  for (int i = 0; i < kRestarts; ++i) {
    runner.wait_for_steps(asked.the_case.save_every + 20);
    const auto times = runner.fault(draws, SIGKILL);
    outcome.restart_seconds += (times.stepped - times.faulted - outcome.step_seconds) / kRestarts;
  }
  runner.wait_for_steps(2 * asked.the_case.save_every);

  const double begun = calendar();
  const std::int64_t from = run.step();
  double next = 0, lost = 0;
  int without_progress = 0;
  std::int64_t furthest = from;
  double last_new = begun;  // when the furthest step was done, as far as was seen
  double stopped_at = 0;    // the last new step before faults that are not overcome yet; 0: there are none
  for (double now; (now = calendar() - begun) < asked.seconds;) {
    run.tend();
    if (run.ended()) throw std::runtime_error("the launch has ended: " + run.said());
    if (const std::int64_t step = run.step(); step > furthest) {
      // What has passed since the last new step is lost, but for the step itself.
      if (stopped_at > 0) lost += std::max(0.0, calendar() - stopped_at - outcome.step_seconds);
      stopped_at = 0;
      without_progress = 0;
      furthest = step;
      last_new = calendar();
    }
    if (now >= next && without_progress < 2) {  // three in a row without a new step would end the run
      if (next > 0) {
        const std::map<int, pid_t> ranks = run.ranks();
        if (!ranks.empty()) {
          if (stopped_at == 0) stopped_at = last_new;
          ::kill(std::next(ranks.begin(), draws.below(std::ssize(ranks)))->second,
                 draws.below(2) == 0 ? SIGKILL : SIGSEGV);
          ++outcome.faults;
          ++without_progress;
        }
      }
      next = now - asked.mean_gap * std::log(1 - draws.between(0, 1));
    }
    nap(0.004);
  }
  outcome.seconds = calendar() - begun;
  if (stopped_at > 0) lost += calendar() - stopped_at;
  outcome.steps = run.step() - from;
  outcome.goodput = 1 - lost / outcome.seconds;
  const GoodputForecast forecast = simulate_goodput({.step_seconds = outcome.step_seconds,
                                                     .device_hours_between_failures = asked.mean_gap / 3600,
                                                     .save_every = asked.the_case.save_every,
                                                     .restart_seconds = outcome.restart_seconds,
                                                     .duration_seconds = outcome.seconds});
  outcome.simulated = forecast.mean;
  outcome.simulated_low = forecast.low;
  outcome.simulated_high = forecast.high;
  return outcome;
}

}  // namespace lockstep::tests
