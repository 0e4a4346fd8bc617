// What `lockstep doctor` says of a run folder, as a user runs it.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::tests {

struct Diagnosis {
  int code = -1;
  std::string text;                // all of it, as JSON
  std::vector<std::string> names;  // of the findings, in their order
  std::string first;               // the first one: summary, evidence and remedies, a line each
};
Diagnosis diagnosis_of(const std::filesystem::path& run);

// Before a program's name: where the user may, it is served before whatever else this machine runs, as on a machine of
// its own.
std::vector<std::string> undisturbed();

}  // namespace lockstep::tests
