// `lockstep compare --levers`: a run under each lever that lowers memory, what each holds where, moves and costs.
#pragma once
#include <optional>
#include <string>

#include "cli/compare_layouts.h"
#include "plan/lever_comparison.h"

namespace lockstep {

// Bytes per second that were measured before the first lever ran; none where no lever of the list needs it.
struct LeverCeilings {
  std::optional<double> disk = {};      // each way, reading and writing at once
  std::optional<double> host = {};      // the link between a GPU and its host, each way, both at once
  std::optional<double> messages = {};  // that a rank sends
};

struct LeversShown {
  LeverCeilings ceilings;
  std::int64_t memory = 0;  // bytes that a rank may take; 0: what is free
  std::int64_t steps = 1;
  int cores = 1;
  bool markdown = false;
};

std::string levers_text(const RunSpec& run, const LeverComparison& comparison, const LeversShown& shown);
std::string levers_json(const RunSpec& run, const LeverComparison& comparison, const LeversShown& shown);

// UserError where the run's mask grows: what is planned of it takes more steps than are compared.
void refuse_growing_mask(const RunSpec& run);

// Returns the exit code.
int compare_levers_of(const CompareSettings& settings);

}  // namespace lockstep
