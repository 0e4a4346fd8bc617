// Injects one fault into a run, from outside: signals, namespaces, files, a library that is loaded before others.
#pragma once
#include <string>
#include <vector>

#include "campaign/campaign_run.h"

namespace lockstep::tests {

struct Injection {
  std::string target;                 // in words
  std::vector<std::string> culprits;  // texts of which a fault that is named right has one
  std::vector<std::string> words;     // of which the agents or the log must say one; empty: none
  std::int64_t committed = 0;         // step of the newest checkpoint that counts, just before
  bool happened = true;               // false: the run was over before
};

// Returns when the fault is over: a disk is back, a cable plugged in again. What follows from it is not waited for.
Injection inject(CampaignRun& run, const PlannedFault& fault);

// Waits while agents are tended, until it is true or the seconds are over; whether it is true.
template <class Condition>
bool wait_until(CampaignRun& run, double seconds, const Condition& condition) {
  for (const auto begun = SteadyClock::now(); seconds_since(begun) < seconds && !run.ended();) {
    run.tend();
    if (condition()) return true;
    nap(0.004);
  }
  return condition();
}

}  // namespace lockstep::tests
