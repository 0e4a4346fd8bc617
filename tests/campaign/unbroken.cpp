#include "campaign/unbroken.h"

#include <fmt/format.h>

#include <cstdlib>
#include <stdexcept>

#include "campaign/campaign_run.h"

namespace lockstep::tests {

namespace fs = std::filesystem;

const Trained& Unbroken::like(const CampaignCase& c) {
  std::unique_lock of_map(mutex_);
  Run& run = runs_[c.layout + " " + c.precision() + (c.has("bit-flip") ? " bit-flip" : "")];
  const fs::path folder = folder_ / fmt::format("unbroken-{}", asked_++);
  of_map.unlock();
  const std::lock_guard lock(run.mutex);
  if (run.trained) return *run.trained;
  std::string command = c.program + " train";
  for (const std::string& word : arguments_of(c, folder)) command += " '" + word + "'";
  if (std::system((command + " >/dev/null").c_str()) != 0) throw std::runtime_error("it failed: " + command);
  run.trained = trained_in(folder / "run", kCampaignSteps);
  fs::remove_all(folder);
  return *run.trained;
}

}  // namespace lockstep::tests
