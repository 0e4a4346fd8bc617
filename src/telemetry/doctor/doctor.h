// What is wrong with a run, from its records alone: pure functions, from what run_reader.h reads to findings.
//
//   RunReader reader("runs/example");
//   for (const Finding& finding : diagnose(reader.update())) …
//
// A healthy run has no finding. The rules are in this folder, with their thresholds and why those: disk.cpp (a full
// disk), endings.cpp (a hang, a rank that was killed, a run that was ended), values.cpp (loss and gradients),
// records.cpp (damaged records), throughput.cpp and waits.cpp (where the time goes), memory.cpp. Rules see numbers of
// the run and nothing else, so they may be fed with records written by hand.
//
// The order: what stopped the run, then what makes its result wrong, then what makes it slow, the costliest first, then
// what only takes memory. A remedy names a key of the run file or a command; the first one is what to try first.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "telemetry/run_reader.h"

namespace lockstep {

enum class Severity { stopped, wrong, slow, memory };
inline constexpr int kSeverities = 4;
constexpr std::string_view name_of(Severity severity) {
  constexpr std::string_view kNames[] = {"stopped", "wrong", "slow", "memory"};
  return kNames[static_cast<int>(severity)];
}

struct Finding {
  std::string name;  // one word for programs, as in "slow_link"
  Severity severity = Severity::slow;
  std::string summary = {};                // one sentence
  std::vector<std::string> evidence = {};  // numbers from the run, a sentence each
  std::vector<std::string> remedies = {};  // in the order to try them
  double cost = 0;                         // of what is slow: the share of the step that it takes, 0 to 1
};

// The most urgent first; empty: healthy.
std::vector<Finding> diagnose(const RunRecords& run);

// Of a run without findings, in one line: how far it is, its speed, and where the time goes.
std::string healthy_text(const RunRecords& run);

}  // namespace lockstep
