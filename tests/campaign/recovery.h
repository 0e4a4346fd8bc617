// How long a run takes to train again after a fault, and how much of an hour of faults becomes steps that count.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "campaign/campaign_case.h"

namespace lockstep::tests {

struct RecoveryTrials {
  CampaignCase the_case;
  bool hangs = false;  // a rank is stopped, and seconds count from when that is found; else one is killed
  int trials = 20;
  int most_per_run = 1000;  // faults, after which a new run begins
};

// Seconds to the next completed step, one per trial.
std::vector<double> recovery_seconds(const RecoveryTrials& trials, const std::filesystem::path& folder, int number);

struct Soak {
  CampaignCase the_case;
  double seconds = 3600, mean_gap = 20;  // between faults
  std::uint64_t seed = 1;
};
struct SoakOutcome {
  double seconds = 0, goodput = 0;
  int faults = 0;
  std::int64_t steps = 0;
  double step_seconds = 0, restart_seconds = 0;  // before the soak, and while faults came
  double step_within = 0, restart_within = 0;
  double simulated_before = 0;  // with the first two; and with the others, its mean and 5 % and 95 % quantiles
  double simulated = 0, simulated_low = 0, simulated_high = 0;
};
SoakOutcome soak(const Soak& soak, const std::filesystem::path& folder, int number);

}  // namespace lockstep::tests
