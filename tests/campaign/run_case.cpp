#include "campaign/run_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include "campaign/campaign_run.h"
#include "campaign/inject.h"
#include "support/run_results.h"

namespace lockstep::tests {

namespace fs = std::filesystem;

namespace {

constexpr double kHang = 75;            // seconds without a new step
constexpr double kOtherLayout = 1e-10;  // how far a result may be off after a change of layout

struct Hung : std::runtime_error {
  using runtime_error::runtime_error;
};
struct Ended : std::runtime_error {
  using runtime_error::runtime_error;
};

std::string text_in(const nlohmann::json& event) { return event.value("text", ""); }

using Lines = std::vector<nlohmann::json>;
Lines fresh(const Lines& all, const Lines& old) {
  Lines lines;
  std::ranges::copy_if(all, std::back_inserter(lines),
                       [&](const nlohmann::json& line) { return std::ranges::find(old, line) == old.end(); });
  return lines;
}

class CaseRunner {
 public:
  CaseRunner(const CampaignCase& c, CampaignRun& run, CaseOutcome& outcome) : case_(c), run_(run), outcome_(outcome) {}

  void run() {
    run_.start();
    std::int64_t furthest = 0;
    for (const PlannedFault& fault : case_.faults) {
      wait_for_step(furthest + fault.after);
      if (run_.ended()) break;
      furthest = std::max(furthest, run_.step());
      if (furthest > kCampaignSteps - 25) break;
      overcome(fault, furthest);
    }
    wait_for_step(kCampaignSteps);
    const auto begun = SteadyClock::now();
    while (!run_.ended()) {
      run_.tend();
      nap(0.01);
      if (seconds_since(begun) > kHang) throw Hung("the agents have not ended after the last step");
    }
    if (run_.code() != 0) throw Ended(fmt::format("the launch has ended with code {}", run_.code()));
  }

 private:
  // A step that is done, though it may be lost again by a fault that was there before.
  void wait_for_step(std::int64_t step) {
    auto moved = SteadyClock::now();
    for (std::int64_t last = run_.step();;) {
      run_.tend();
      const std::int64_t now = run_.step();
      if (now >= step || run_.ended()) return;
      if (now != last) moved = SteadyClock::now();
      last = now;
      if (seconds_since(moved) > kHang) throw Hung(fmt::format("no step after {} within {:.0f} s", now, kHang));
      nap(0.005);
    }
  }

  void overcome(const PlannedFault& fault, std::int64_t& furthest) {
    const FaultKind& kind = kFaultKinds[fault.kind];
    const CampaignEvents before = run_.events();
    const auto begun = SteadyClock::now();
    const Injection injection = inject(run_, fault);
    if (!injection.happened) return;
    FaultOutcome outcome{.kind = std::string(kind.name), .target = injection.target};
    furthest = std::max(furthest, run_.step());
    const bool restarts = kind.follows == Follows::restart || kind.follows == Follows::resume;
    // New: ranks have started again, and are past where they were. A fault that was late for the run's end has none.
    const auto is_over = [&] {
      if (run_.step() <= furthest && run_.step() < kCampaignSteps) return false;
      return !restarts || run_.step() >= kCampaignSteps || !fresh(run_.events().starts, before.starts).empty();
    };
    if (kind.follows == Follows::either) wait_until(run_, 1.5, [] { return false; });  // it may take effect yet
    if (!wait_until(run_, kHang, is_over) && !run_.ended())
      throw Hung(fmt::format("{} ({}): no new step within {:.0f} s", kind.name, injection.target, kHang));
    outcome.seconds = seconds_since(begun);
    judge(kind, injection, before, outcome);
    outcome_.faults.push_back(outcome);
    if (run_.ended() && run_.code() != 0)
      throw Ended(fmt::format("{} ({}) has ended the launch with code {}", kind.name, injection.target, run_.code()));
  }

  void judge(const FaultKind& kind, const Injection& injection, const CampaignEvents& before, FaultOutcome& outcome) {
    const CampaignEvents now = run_.events();
    const auto faults = fresh(now.agent_faults, before.agent_faults);
    const auto by_ranks = fresh(now.rank_faults, before.rank_faults);
    for (const auto& start : fresh(now.starts, before.starts))
      if (start.value("step", std::int64_t{0}) < injection.committed) {
        outcome.lost = true;
        outcome.said +=
            fmt::format("[resumed at {}, had {}] ", start.value("step", std::int64_t{0}), injection.committed);
      }
    for (const auto& fault : faults) outcome.said += text_in(fault) + "; ";
    if (kind.follows == Follows::nothing) {
      outcome.asked = true;
      outcome.named = faults.empty();  // else it is a false alarm
      return;
    }
    if (kind.follows == Follows::resume || (kind.follows == Follows::either && faults.empty())) return;
    if (faults.empty() && run_.step() >= kCampaignSteps) return;  // too late to matter
    outcome.asked = true;
    const auto names = [&](const nlohmann::json& event) {
      return std::ranges::any_of(
          injection.culprits, [&](const std::string& part) { return text_in(event).find(part) != std::string::npos; });
    };
    // Who ends with exit code 5 is most often a victim, and says whose.
    outcome.named = std::ranges::any_of(faults, names) || (!faults.empty() && std::ranges::any_of(by_ranks, names));
    if (!outcome.named)
      for (const auto& fault : by_ranks) outcome.said += "(" + text_in(fault) + ") ";
  }

  const CampaignCase& case_;
  CampaignRun& run_;
  CaseOutcome& outcome_;
};

}  // namespace

bool CaseOutcome::lost() const {
  return std::ranges::any_of(faults, [](const FaultOutcome& fault) { return fault.lost; });
}

nlohmann::json CaseOutcome::to_json() const {
  nlohmann::json all = {{"seed", the_case.seed}, {"case", the_case.text()}, {"hung", hung},
                        {"wrong", wrong},        {"lost", lost()},          {"why", why},
                        {"seconds", seconds},    {"distance", distance}};
  all["faults"] = nlohmann::json::array();
  for (const FaultOutcome& fault : faults)
    all["faults"].push_back({{"kind", fault.kind},
                             {"target", fault.target},
                             {"asked", fault.asked},
                             {"named", fault.named},
                             {"lost", fault.lost},
                             {"seconds", fault.seconds},
                             {"said", fault.said}});
  return all;
}

CaseOutcome run_case(const CampaignCase& c, const fs::path& folder, int number, Unbroken& unbroken, bool keep) {
  CaseOutcome outcome{.the_case = c};
  const Trained& expected = unbroken.like(c);
  const auto begun = SteadyClock::now();
  const auto note = [&](const CampaignRun& run, const std::string& why) {
    outcome.why = why;
    if (!keep) return;
    std::error_code error;
    fs::copy(run.out(), folder / "left", fs::copy_options::recursive | fs::copy_options::overwrite_existing, error);
  };
  {
    CampaignRun run(c, folder, number);
    try {
      CaseRunner(c, run, outcome).run();
      const Trained trained = trained_in(run.out(), kCampaignSteps);
      outcome.distance = distance(trained, expected);
      outcome.wrong = outcome.distance > (run.events().layout_changed ? kOtherLayout : 0);
      if (outcome.wrong) note(run, fmt::format("its result is {} off the unbroken run's", outcome.distance));
    } catch (const Hung& hung) {
      outcome.hung = true;
      note(run, hung.what());
    } catch (const std::exception& error) {
      outcome.wrong = true;
      note(run, error.what());
    }
    if (!outcome.hung && !outcome.wrong && outcome.lost()) note(run, "committed steps were lost");
    if (!outcome.good()) {
      std::string said = run.said();
      if (said.size() > 3000) said = said.substr(said.size() - 3000);
      outcome.why += "\n" + said;
    }
  }
  outcome.seconds = seconds_since(begun);
  std::error_code error;
  if (outcome.good() || !keep) fs::remove_all(folder, error);
  return outcome;
}

}  // namespace lockstep::tests
