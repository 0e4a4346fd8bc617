// The runs that cases of the campaign are held to.
#pragma once
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "campaign/campaign_case.h"
#include "support/trained.h"

namespace lockstep::tests {

// Runs that nothing was done to, one per layout, each trained when it is first asked for. Threads may ask together:
// those that ask for one that is being trained wait for it alone.
class Unbroken {
 public:
  explicit Unbroken(std::filesystem::path folder) : folder_(std::move(folder)) {}
  const Trained& like(const CampaignCase& c);

 private:
  struct Run {
    std::mutex mutex;
    std::optional<Trained> trained;
  };

  std::filesystem::path folder_;
  std::mutex mutex_;  // of what follows
  std::map<std::string, Run> runs_;
  int asked_ = 0;  // which names folders
};

}  // namespace lockstep::tests
