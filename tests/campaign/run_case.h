// Runs one case of the campaign and judges it: no hang, the result of an unbroken run, no committed step lost, the
// culprit named.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "campaign/campaign_case.h"
#include "campaign/unbroken.h"

namespace lockstep::tests {

struct FaultOutcome {
  std::string kind = {}, target = {};
  bool named = true;      // the culprit, where one is to be named
  bool asked = false;     // one was to be named
  bool lost = false;      // a committed step
  double seconds = 0;     // from the injection to the next new step
  std::string said = {};  // what the agents made of it
};

struct CaseOutcome {
  CampaignCase the_case;
  std::vector<FaultOutcome> faults = {};  // that were injected
  bool hung = false, wrong = false;
  std::string why = {};  // of a case that failed
  double distance = 0;   // of its result to the unbroken run's
  double seconds = 0;

  bool lost() const;
  bool good() const { return !hung && !wrong && !lost(); }
  nlohmann::json to_json() const;
};

// `keep`: the folder stays where the case has failed.
CaseOutcome run_case(const CampaignCase& c, const std::filesystem::path& folder, int number, Unbroken& unbroken,
                     bool keep);

}  // namespace lockstep::tests
