// The settings of a resolved run file one by one, and which of them must be equal on all ranks of a run.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spec/run/run_spec.h"

namespace lockstep {

// "section.key" and its value, as a resolved run file writes them, in its order: one key a line.
std::vector<std::pair<std::string, std::string>> settings_of(const std::string& toml);

// Whether ranks of one run may have different values: what belongs to a rank's own machine, and paths, of which the
// content counts (train/start_agreement.h). Every other key must be the same on all ranks, also one that is added
// later.
bool may_differ_by_rank(std::string_view setting);

// Whether it says where a source of a mixture has its tokens: the content counts, not the path.
bool is_place_of_source(std::string_view setting);

// Those that may not, of this run. A schedule by hand is there as a checksum of its text.
std::vector<std::pair<std::string, std::string>> settings_alike(const RunSpec& spec);

}  // namespace lockstep
