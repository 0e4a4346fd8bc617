// One case of the campaign, drawn from its seed: a run, and the faults that are injected into it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "campaign/fault_kind.h"

namespace lockstep::tests {

inline constexpr std::int64_t kCampaignSteps = 1000, kCampaignSaves = 25;

struct PlannedFault {
  std::size_t kind = 0;    // of kFaultKinds
  std::int64_t after = 0;  // steps that are new since the last fault
  std::uint64_t seed = 0;  // of everything else about it
};

struct CampaignCase {
  std::uint64_t seed = 0;
  RanksAs ranks_as = RanksAs::threads;
  int hosts = 1;
  int ranks = 1;
  std::string layout = {};
  int spares = 0;
  bool shrinks = false;       // fewer ranks may continue the run
  std::string on_fault = {};  // rules; empty: as `shrinks` says
  std::int64_t steps = kCampaignSteps, save_every = kCampaignSaves;
  std::vector<std::string> more = {};  // arguments of train
  int disk_megabytes = 48;
  std::vector<PlannedFault> faults = {};
  std::string program = LOCKSTEP_BINARY;  // libfaulty_process.so is beside it

  bool has(std::string_view kind) const;  // among its faults
  std::string precision() const { return "fp64"; }
  std::string text() const;  // in one line
};

// `only`: the name of the one kind that is wanted; empty: any.
CampaignCase draw_case(std::uint64_t seed, const std::string& only = "");

// A counter-based generator: numbers of a seed, one after the other.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : state_(seed) { state_ = next() ^ (next() << 1); }
  std::uint64_t next();
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(n)); }
  double between(double least, double most) {
    return least + (most - least) * static_cast<double>(next() >> 11) / 9007199254740992.0;
  }

 private:
  std::uint64_t state_;
};

}  // namespace lockstep::tests
