// A run of the campaign under its agents: started, watched from outside, and ended whatever happens.
//
// The run's folder is a small disk of its own, and so are its checkpoints. Whoever keeps services alive on a host is
// played by tend(): an agent that was killed is started again after a while.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "campaign/campaign_case.h"
#include "campaign/small_network.h"
#include "faulty_process/faulty_process.h"
#include "support/small_disk.h"

namespace lockstep::tests {

using SteadyClock = std::chrono::steady_clock;
inline double seconds_since(SteadyClock::time_point then) {
  return std::chrono::duration<double>(SteadyClock::now() - then).count();
}
void nap(double seconds);
// Set by a signal: whatever runs is taken down, by an exception out of tend().
extern std::atomic<bool> stop_campaigns;

// The arguments of train and launch that make a case's run; written beside it: run.toml.
std::vector<std::string> arguments_of(const CampaignCase& c, const std::filesystem::path& folder);

struct CampaignEvents {
  std::vector<nlohmann::json> agent_faults;  // texts of the leading agent
  std::vector<nlohmann::json> rank_faults;   // of ranks
  std::vector<nlohmann::json> starts;        // of rank 0
  std::vector<nlohmann::json> decisions;
  bool layout_changed = false;
};

class CampaignRun {
 public:
  // `number`: of those that run at the same time.
  CampaignRun(const CampaignCase& c, std::filesystem::path folder, int number);
  ~CampaignRun();
  CampaignRun(const CampaignRun&) = delete;
  CampaignRun& operator=(const CampaignRun&) = delete;

  void start();
  // Reaps agents and starts those again that were killed. Call it often.
  void tend();
  bool ended() const;  // all agents have, and none is to be started again
  int code() const { return code_; }

  const std::filesystem::path& out() const { return out_; }
  const CampaignCase& the_case() const { return case_; }
  std::int64_t step() const;                      // the last that metrics.jsonl tells of
  std::int64_t newest_checkpoint() const;         // that `latest` names; 0: none
  std::vector<std::int64_t> checkpoints() const;  // steps of those that are there, ascending
  bool is_saving() const;
  std::map<int, pid_t> ranks() const;  // processes that are at work, by rank
  int host_of(int rank) const;         // in this epoch
  std::vector<int> ranks_of(int host) const;
  int leader() const;  // its host
  pid_t agent_of(int host) const;
  CampaignEvents events() const;
  std::string said() const;  // standard error of all agents

  void kill_agent(int host, double seconds_until_back);
  FaultyControls& controls() { return *controls_; }
  const SmallNetwork* network() const { return network_.get(); }
  const SmallDisk& disk() const { return *disk_; }
  const SmallDisk& checkpoint_disk() const { return *checkpoint_disk_; }
  std::string host_name(int host) const;

 private:
  struct Agent {
    pid_t pid = -1;
    bool was_started = false, killed = false;
    std::optional<SteadyClock::time_point> back_at = {};
  };
  void start_agent(int host);
  std::string where(const std::string& name) const { return (folder_ / name).string(); }

  CampaignCase case_;
  std::filesystem::path folder_, out_;
  FaultyControls* controls_ = nullptr;
  std::unique_ptr<SmallNetwork> network_;
  std::unique_ptr<SmallDisk> disk_, checkpoint_disk_;
  std::vector<Agent> agents_;
  int code_ = 0;
};

// Ends all processes whose command line names this folder.
void end_all_in(const std::filesystem::path& folder);

}  // namespace lockstep::tests
