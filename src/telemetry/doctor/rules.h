// The rules of doctor.h, one function for each kind of trouble: each adds what it finds.
#pragma once
#include <string>
#include <vector>

#include "telemetry/doctor/doctor.h"

namespace lockstep::doctor {

void find_disk_trouble(const RunRecords& run, std::vector<Finding>& findings);
void find_endings(const RunRecords& run, std::vector<Finding>& findings);     // hangs, lost ranks, failures
void find_bad_values(const RunRecords& run, std::vector<Finding>& findings);  // NaN, spikes, a loss that rises
void find_damaged_records(const RunRecords& run, std::vector<Finding>& findings);
void find_throughput(const RunRecords& run, std::vector<Finding>& findings);
void find_memory(const RunRecords& run, std::vector<Finding>& findings);

// The lines of log.txt since the run was last begun or resumed.
std::vector<std::string> log_of_last_attempt(const RunRecords& run);

// Commands that a person may copy, with the run's own folder: `lockstep train --resume runs/a`, or, where nothing was
// ever saved, `lockstep train runs/a/run.toml --out runs/a --resume`, which begins again.
std::string resume_command(const RunRecords& run, const std::string& options = "");
// The same as a sentence.
std::string how_to_continue(const RunRecords& run);
// A path as a shell takes it.
std::string shell_quoted(const std::string& path);

// "rank 3", or "ranks 3, 5, 7 and 20 more".
std::string rank_list(const std::vector<int>& ranks);
// "0.43" as "43%".
std::string percent(double share);
// "12 ms", "3.4 s".
std::string seconds_text(double seconds);

}  // namespace lockstep::doctor
