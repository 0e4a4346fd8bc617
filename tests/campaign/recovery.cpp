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

namespace {

// From the discovery of a fault to the next completed step, since a moment, where no other fault came in between: the
// agent's lines.
std::vector<double> restarts_since(double begun, const fs::path& out) {
  std::vector<double> all;
  std::ifstream lines(out / "events.jsonl");
  int faults = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("\"kind\":\"step\"") != std::string::npos) continue;
    const auto event = nlohmann::json::parse(line, nullptr, false);
    if (!event.is_object() || !event.contains("kind") || !event["rank"].is_null() || event["time"] < begun) continue;
    if (event["kind"] == "fault") ++faults;
    if (event["kind"] != "restart") continue;
    if (std::exchange(faults, 0) == 1) all.push_back(event["seconds"]);
  }
  return all;
}

}  // namespace

// The simulator is told how long a step and a restart take: once as the first minutes have shown it, and once as it
// was while faults came, since on a machine that others share the first minutes are not the hour.
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
  const auto forecast = [&](double step, double restart) {
    return simulate_goodput({.step_seconds = step,
                             .device_hours_between_failures = asked.mean_gap / 3600,
                             .save_every = asked.the_case.save_every,
                             .restart_seconds = restart,
                             .duration_seconds = outcome.seconds});
  };
  outcome.simulated_before = forecast(outcome.step_seconds, outcome.restart_seconds).mean;
  const std::vector<double> restarts = restarts_since(begun, run.out());
  if (restarts.empty() || outcome.steps == 0) throw std::runtime_error("no fault was overcome: " + run.said());
  outcome.step_within = (outcome.seconds - lost) / static_cast<double>(outcome.steps);
  outcome.restart_within = std::accumulate(restarts.begin(), restarts.end(), 0.0) / std::ssize(restarts);
  const GoodputForecast within = forecast(outcome.step_within, outcome.restart_within);
  outcome.simulated = within.mean;
  outcome.simulated_low = within.low;
  outcome.simulated_high = within.high;
  return outcome;
}

}  // namespace lockstep::tests
