// The runs that cases of the campaign are held to.
#pragma once
#include <filesystem>
#include <map>
#include <mutex>
#include <string>

#include "campaign/campaign_case.h"
#include "support/trained.h"

namespace lockstep::tests {

// Runs that nothing was done to, one per layout, each trained when it is first asked for. Threads may ask together.
class Unbroken {
 public:
  explicit Unbroken(std::filesystem::path folder) : folder_(std::move(folder)) {}
  const Trained& like(const CampaignCase& c);

 private:
  std::filesystem::path folder_;
  std::mutex mutex_;
  std::map<std::string, Trained> known_;
};

}  // namespace lockstep::tests
